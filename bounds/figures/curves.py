"""Curves: influence against length, entropies, simulation, sensitivity.

A series has the influences of one model at several n, and bounds on them. Levels are the
cross-entropies of the best predictions from parts of a prefix; a floor is a lower bound
on the cross-entropy of a model. A simulation runs hard attention by softmax. In figures
of influence a colour is a weighting of attention, a mark and dash a kind of number.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.series import Gap, Series, free_places, merge, points
from bounds.figures import primitives as draw
from bounds.store.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Columns of entropies, labels and looks: levels of the source from the worst prediction to
# the best, then floors.
ENTROPIES: dict[str, tuple[str, dict[str, Any]]] = {
    "unigram": ("chance: best constant", {"color": "#D55E00", "ls": "--"}),
    "last_symbol": ("best from the last symbol", {"color": "#E69F00", "ls": "-."}),
    "optimal": ("optimum", {"color": "#009E73", "ls": ":"}),
    "floor_r1": ("floor, read at the last symbol", {"color": "#CC79A7", "marker": "v"}),
    "floor_r2": ("floor, read at an end token", {"color": "#56B4E9", "marker": "^"}),
}
MODEL: Mapping[str, Any] = {"color": "#0072B2", "marker": "o", "ms": 4, "capsize": 2}
# Errors of a simulation: below the floor float64 shows zero; above the ceiling they are not
# errors any more, but another output.
FLOOR, CEILING, MOST_LENGTHS = 1e-17, 1e3, 5
TEMPERATURE, ERROR = "temperature τ (score units)", "largest error of an activation"
MARKS = (
    "marks: measured, lines: certified bound, stars: certified τ, "
    "bars: τ of the theorem;\ndashed: the error ε that is allowed"
)
STAR: Mapping[str, Any] = {"marker": "*", "ms": 11, "mec": "white", "zorder": 4}
BAR: Mapping[str, Any] = {"marker": "|", "ms": 16, "mew": 2, "zorder": 3}
# Powers of n that guides follow: of PARITY, and of one layer and one head at most.
GUIDES = {"n": 1.0, "√n": 0.5}
# Decades above the largest exact value beyond which a line is not drawn.
DECADES = 8.0
# Shares of the axis of n between marks that would coincide, and between an arrow and the
# values whose distance it marks.
ASIDE, BESIDE = 0.015, 0.05
BEND = "n = 1 + e²ᴬ, A half the range of a\nrow of logits: bound on a weight 1/2"


def curve_figure(
    series: Sequence[Series], quantity: str, trained_to: Sequence[int] = ()
) -> "Figure":
    """Figure of influences against n, `MAX_SERIES` series at most; logarithmic axes."""
    # Equal series are one line with both names.
    series = merge(series)
    bounded = [(s, c) for s, c in zip(series, draw.COLOURS, strict=False) if s.bounds]
    x, y = (np.concatenate([getattr(one, axis) for one in series]) for axis in "xy")
    height, places = 5.0 if bounded else 3.6, free_places(series)
    with draw.curves(quantity, y, height=height) as (figure, axes):
        step = float(x.max() / x.min()) ** ASIDE if len(x) else 1.0
        for k, (one, place) in enumerate(zip(series, places, strict=True)):
            draw.values(axes, one.x * step**place, one.y, k, one.label)
        upright = {"rotation": 90, "ha": "right", "color": "0.3", "bbox": draw.BACKDROP}
        # Upright lines mark lengths within those measured.
        for n in [n for n in trained_to if x.min() <= n <= x.max()]:
            look = {"end": 0.02, "dash": "-.", "size": 7, "offset": (-2, 0), **upright}
            draw.guide(axes, f"trained to n = {n}", n, **look)
        _draw_bounds(axes, bounded, y.max(initial=0.0) or 1.0)
        # One gap: of the first line whose constant falls, else of the first.
        gaps = [(one.gap, colour) for one, colour in bounded if one.gap is not None]
        for gap, colour in sorted(gaps, key=lambda pair: pair[0].bend is None)[:1]:
            _draw_gap(axes, gap, colour)
        if len(lengths := np.unique(x[y > 0]).astype(float)) > 1:
            ends, level = lengths[[0, -1]], y[(x == lengths[0]) & (y > 0)]
            first = 1.6 * level.max()
            # A thin grey line is proportional to 1/n.
            axes.plot(ends, first * ends[0] / ends, **draw.GUIDE)
            look = {"size": 7, "ha": "left", "color": "0.4", "bbox": draw.BACKDROP}
            draw.write(axes, "proportional to 1/n", (ends[0], first), **look)
        several = any(len(np.unique(one.x)) < len(one.x) for one in series)
        notes = ["lines: the largest; light marks: every input"] if several else []
        notes += ["what coincides is set side by side"] if any(places) else []
        draw.show_legend(figure, title="; ".join(notes))
    return figure


def _draw_bounds(
    axes: "Axes", bounded: Sequence[tuple[Series, str]], largest: float
) -> None:
    """Draws bounds near the largest value; names bounds far above it in the title."""
    drawn: dict[str, Mapping[str, Any]] = {}
    far: dict[str, list[str]] = {}
    for k, (one, colour) in enumerate(bounded):
        for line in one.bounds:
            # A bound far above the values would press all else into one line.
            if line.log10.max() > np.log10(largest) + DECADES:
                ends = (f"{x:.0f}" for x in (line.log10.min(), line.log10.max()))
                powers = " to ".join(dict.fromkeys(f"$10^{{{x}}}$" for x in ends))
                name = one.label.partition(" (")[0]
                words = f"{powers} ({name})" if name else powers
                far.setdefault(line.legend, []).append(words)
                continue
            # Later lines are finer, so that one which coincides with an earlier one shows.
            sizes = {"linewidth": 1.6 / (k + 1), "markersize": 6.5 - 1.5 * min(k, 3)}
            look = {"color": colour, **sizes, **line.look}
            axes.plot(line.x, 10.0**line.log10, **look)
            drawn[line.legend] = line.look
    titles = [f"beyond the axis, {kind}: {', '.join(s)}" for kind, s in far.items()]
    axes.set_title("\n".join(titles), fontsize=7, color="0.3", loc="left")
    for kind, look in drawn.items():
        axes.plot([], [], label=kind, **{"color": "0.3", "markersize": 5, **look})


def _draw_gap(axes: "Axes", gap: Gap, colour: str) -> None:
    """Marks the gap from exact value to bound, and n where the bound begins to fall."""
    if (decades := gap.decades) is not None and decades <= DECADES:
        low, high = 10.0 ** (gap.corrected - decades), 10.0**gap.corrected
        # Beside the marks, which would hide its heads, between lines that lead to them.
        left, right = axes.get_xlim()
        place = gap.last * (right / left) ** BESIDE
        axes.hlines([low, high], gap.last, place, colour, linewidth=0.6)
        arrow = {"arrowstyle": "<->", "color": colour, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (place, low), (place, high), arrowprops=arrow)
        text, middle = f"{decades:.1f} decades", low * 10.0 ** (decades / 2)
        draw.write(axes, text, (place, middle), (5, 0), 7, ha="left", va="center")
    if gap.bend is not None:
        look = {"color": colour, "linewidth": 0.8, "linestyle": ":", "label": BEND}
        axes.axvline(10**gap.bend, zorder=0, **look)


def entropy_figure(table: Table, language: str) -> "Figure":
    """Draw cross-entropies against n: levels, floors, and a model where there is one.

    Args:
        table: Rows as the command `entropy` writes them.
        language: Its name, for the axis.

    Returns:
        A Matplotlib figure, one column of a paper wide.
    """
    # Even and odd lengths differ where brackets must balance; each has its own line then.
    parts = [[*table]]
    if any(row.get("p0") is not None for row in table):
        parts = [[row for row in table if row["n"] % 2 == odd] for odd in (0, 1)]
    quantity = f"cross-entropy on {language} (nats)"
    with draw.curves(quantity, None, "length n (symbols)", 4.2) as (figure, axes):
        axes.set_xscale("log", base=2)
        for name, (label, look) in ENTROPIES.items():
            kinds = {r["floor_kind"] for r in table if r.get(name) is not None}
            label += f" ({', '.join(sorted(kinds))})" if "floor" in name else ""
            for n, y in (points(part, name) for part in parts):
                if len(n):
                    axes.plot(n, y, label=label, markersize=4, **look)
                    label = "_nolegend_"
        if rows := [row for row in table if row.get("model") is not None]:
            errors = 2 * np.array([row["model_stderr"] or 0.0 for row in rows])
            label = "model, ± 2 standard errors"
            axes.errorbar(*points(rows, "model"), errors, label=label, **MODEL)
        draw.show_legend(figure, size=7.5)
    return figure


def simulation_figure(table: Table) -> "Figure":
    """Figure of simulation errors against temperature, a colour for each length."""
    # Rows are those of `Simulation.row` with sweeps; `MARKS` is what is drawn of each.
    rows = [row for row in table if row["temperatures"]]
    shown = min(len(rows), MOST_LENGTHS)
    rows = [rows[k] for k in np.linspace(0, len(rows) - 1, shown).round().astype(int)]
    with draw.curves(ERROR, np.array([0.0, FLOOR]), TEMPERATURE, 4.2) as (figure, axes):
        for row, look in zip(rows, draw.LOOKS, strict=False):
            colour, taus = look["color"], row["temperatures"]
            gap = "none" if row["gap"] is None else f"{row['gap']:.3g}"
            label = f"n = {row['n']}, gap {gap}: largest of {row.get('measured_on')}"
            axes.plot(
                taus, row["errors"], label=label, ms=4, **{**look, "linestyle": "none"}
            )
            axes.plot(taus, row["bounds"], color=colour, linewidth=1.3)
            if (tau := row["tau_certificate"]) is not None:
                axes.plot(tau, row["bound_certificate"], color=colour, **STAR)
            if tau := row["tau_formula"]:
                axes.plot(tau, 0.0, color=colour, **BAR)
        for epsilon in [row["epsilon"] for row in rows][:1]:
            axes.axhline(epsilon, linestyle="--", **draw.GUIDE)
            look = {
                "xycoords": axes.get_yaxis_transform(),
                "color": "0.4",
                "ha": "left",
            }
            draw.write(axes, "ε", (1.0, epsilon), size=8, **look)
        axes.set_ylim(top=CEILING)
        draw.show_legend(figure, size=7.5, columnspacing=1.0, title=MARKS)
    return figure


def sensitivity_figure(rows: Sequence[Mapping[str, Any]], label: str) -> "Figure":
    """Figure of average sensitivity against n, with intervals of sampled means."""
    n, means = points(rows, "mean", "positions")
    places, low = points(rows, "interval_lower", "positions")
    _, high = points(rows, "interval_upper", "positions")
    labels = ("average sensitivity (positions)", "positions n that are replaced")
    with draw.curves(labels[0], np.append(means, low), labels[1]) as (figure, axes):
        bar = {"color": draw.LOOKS[0]["color"], "linewidth": 1.0, "alpha": 0.6}
        axes.vlines(places, low, high, **bar)
        draw.values(axes, n, means, 0, label)
        ends = np.array([n.min(), n.max()])
        for name, power in GUIDES.items():
            axes.plot(ends, ends**power, **draw.GUIDE)
            look = {"ha": "left", "va": "center", "color": "0.4"}
            draw.write(axes, name, (ends[1], ends[1] ** power), (4, 0), size=8, **look)
        has_bars = "bars: 95% interval of a mean over samples" if low.size else None
        draw.show_legend(figure, title=has_bars)
    return figure

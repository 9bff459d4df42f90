"""Curves: influence against length, training, entropies, simulation, sensitivity, sweeps.

Levels are the cross-entropies of the best predictions from parts of a prefix; a floor is a
lower bound on the cross-entropy of a model. In figures of influence a colour is a weighting,
as of its exact values; a mark and dash is a kind of number.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

from bounds.curves.series import Gap, Series, free_places, merge, points
from bounds.figures import sweep_layout as sweeps
from bounds.figures.primitives import (
    BACKDROP,
    COLOURS,
    COLUMN,
    GUIDE,
    LOOKS,
    curves,
    draw_guide,
    draw_values,
    floor_below,
    label_logarithms,
    new_figure,
    show_legend,
    write,
)
from bounds.store.table import Table
from jax_models.languages.base import Levels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Rows = Sequence[Mapping[str, Any]]
LOSS = "cross-entropy (nats per symbol)"
# Shown above the highest level: the first steps of a run may lie far higher.
HEADROOM = 0.5
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
# Letters of a label beyond which labels stand below one another.
LONG_LABEL = 28
# More panels are no longer read; these many are shown, evenly chosen.
MOST_PANELS, PANELS_PER_ROW = 12, 3
WIDE_X, WIDE_Y = 8.0, 20.0  # ratios from which an axis is logarithmic
# Decades above the largest exact value beyond which a line is not drawn.
DECADES = 8.0
# Shares of the axis of n between marks that would coincide, and between an arrow and the
# values whose distance it marks.
ASIDE, BESIDE = 0.015, 0.05
BEND = "n = 1 + e²ᴬ, A half the range of a\nrow of logits: bound on a weight 1/2"


def curve_figure(
    series: Sequence[Series], quantity: str, trained_to: Sequence[int] = ()
) -> "Figure":
    """Figure of at most `MAX_SERIES` series on logarithmic axes; `quantity` names y."""
    # Equal series are one line with both names.
    series = merge(series)
    bounded = [(one, c) for one, c in zip(series, COLOURS, strict=False) if one.bounds]
    x, y = (np.concatenate([getattr(one, axis) for one in series]) for axis in "xy")
    floor, height, places = floor_below(y), 5.0 if bounded else 3.6, free_places(series)
    with curves(quantity, height=height, floor=floor) as (figure, axes):
        step = float(x.max() / x.min()) ** ASIDE if len(x) else 1.0
        for k, (one, place) in enumerate(zip(series, places, strict=True)):
            draw_values(axes, one.x * step**place, one.y, k, one.label, floor=floor)
        upright = {"rotation": 90, "ha": "right", "color": "0.3", "bbox": BACKDROP}
        # Upright lines mark lengths within those measured.
        for n in [n for n in trained_to if x.min() <= n <= x.max()]:
            look = {"end": 0.02, "dash": "-.", "size": 7, "offset": (-2, 0), **upright}
            draw_guide(axes, f"trained to n = {n}", n, "x", **look)
        _draw_bounds(axes, bounded, y.max(initial=0.0) or 1.0)
        # One gap: of the first line whose constant falls, else of the first.
        gaps = [(one.gap, colour) for one, colour in bounded if one.gap is not None]
        for gap, colour in sorted(gaps, key=lambda pair: pair[0].bend is None)[:1]:
            _draw_gap(axes, gap, colour)
        if len(lengths := np.unique(x[y > 0]).astype(float)) > 1:
            ends, level = lengths[[0, -1]], y[(x == lengths[0]) & (y > 0)]
            # Bounds that stand alone lie above the values: the line then goes below.
            apart = any(one.bounds and not one.x.size for one in series)
            first = level.min() / 1.6 if apart else 1.6 * level.max()
            # A thin grey line is proportional to 1/n.
            axes.plot(ends, first * ends[0] / ends, **GUIDE)
            look = {"size": 7, "ha": "left", "color": "0.4", "bbox": BACKDROP}
            look |= {"offset": (0, -8), "va": "top"} if apart else {}
            write(axes, "proportional to 1/n", (ends[0], first), **look)
        several = any(len(np.unique(one.x)) < len(one.x) for one in series)
        notes = ["lines: the largest; light marks: every input"] if several else []
        notes += ["what coincides is set side by side"] if any(places) else []
        show_legend(figure, title="; ".join(notes))
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
    """Marks the decades between exact value and constant, and n where it begins to fall."""
    if (decades := gap.decades) is not None and decades <= DECADES:
        low, high = gap.corrected - decades, gap.corrected
        # Beside the marks, which would hide its heads, between lines that lead to them.
        left, right = axes.get_xlim()
        place = gap.last * (right / left) ** BESIDE
        for level in (10.0**low, 10.0**high):
            axes.plot([gap.last, place], [level] * 2, color=colour, linewidth=0.6)
        arrow = {"arrowstyle": "<->", "color": colour, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (place, 10.0**low), (place, 10.0**high), arrowprops=arrow)
        middle = (place, 10.0 ** ((low + high) / 2))
        beside = {"size": 7, "ha": "left", "va": "center"}
        write(axes, f"{decades:.1f} decades", middle, (5, 0), **beside)
    if gap.bend is not None:
        look = {"color": colour, "linewidth": 0.8, "linestyle": ":", "label": BEND}
        axes.axvline(10**gap.bend, zorder=0, **look)


def loss_figure(
    rows: Rows, lengths: Sequence[int], length: int, levels: Levels
) -> "Figure":
    """Figure of the loss against the step, with the levels at the training's longest n."""
    # Rows have `step`, and some `loss`, `optimal` and `loss_n` of the measured lengths n.
    batches = points(rows, "loss", "step")
    optimum = float(np.mean([row["optimal"] for row in rows if "loss" in row]))
    shown = (
        (levels.unigram, f"unigram, n = {length}", "-."),
        (levels.last_symbol, f"last symbol, n = {length}", "--"),
        (levels.optimal, f"optimum, n = {length}", "-"),
        (optimum, "optimum, batches", ":"),
    )
    with curves(LOSS, "step", 3.8, ("linear", "linear")) as (figure, axes):
        axes.plot(*batches, color="0.8", linewidth=0.5, label="batch", zorder=0)
        ends = [levels.unigram, batches[1][-1]]
        for k, n in enumerate(lengths):
            steps, losses = points(rows, f"loss_{n}", "step")
            look: Mapping[str, Any] = LOOKS[k % len(LOOKS)]
            axes.plot(steps, losses, label=f"n = {n}", ms=3.5, lw=1.0, **look)
            # Lengths beyond may cost far more; the ends of those trained on are seen.
            ends += [losses[-1]] if n <= length else []
        for level, label, dash in shown:
            axes.axhline(level, color="0.4", linewidth=0.9, linestyle=dash, label=label)
        lowest = min(level for level, *_ in shown)
        spread = levels.unigram - lowest
        bottom = min(lowest, batches[1].min()) - 0.1 * spread
        axes.set_ylim(bottom, max(ends) + HEADROOM * spread)
        axes.locator_params("x", integer=True)
        show_legend(figure, size=7, ncols=3)
    return figure


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
    shape = ("length n (symbols)", 4.2, ("log", "linear"))
    with curves(f"cross-entropy on {language} (nats)", *shape) as (figure, axes):
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
        show_legend(figure, size=7.5)
    return figure


def simulation_figure(table: Table) -> "Figure":
    """Figure of errors against temperature, a colour per length, of at most 5 lengths."""
    # Rows are those of `Simulation.row` with sweeps; `MARKS` is what is drawn of each.
    rows = [row for row in table if row["temperatures"]]
    shown = min(len(rows), MOST_LENGTHS)
    rows = [rows[k] for k in np.linspace(0, len(rows) - 1, shown).round().astype(int)]
    with curves(ERROR, TEMPERATURE, 4.2, floor=FLOOR) as (figure, axes):
        for row, look in zip(rows, LOOKS, strict=False):
            colour, taus = look["color"], np.array(row["temperatures"])
            errors = np.maximum(np.array(row["errors"], float), FLOOR)
            bounds = np.maximum(np.array(row["bounds"], float), FLOOR / 10)
            gap = "none" if row["gap"] is None else f"{row['gap']:.3g}"
            label = f"n = {row['n']}, gap {gap}: largest of {row.get('measured_on')}"
            axes.plot(taus, errors, label=label, ms=4, **{**look, "linestyle": "none"})
            axes.plot(taus, bounds, color=colour, linewidth=1.3)
            if (tau := row["tau_certificate"]) is not None:
                axes.plot(tau, row["bound_certificate"] or FLOOR, color=colour, **STAR)
            if tau := row["tau_formula"]:
                axes.plot(tau, FLOOR, color=colour, **BAR)
        for epsilon in [row["epsilon"] for row in rows][:1]:
            draw_guide(axes, "ε", epsilon, "y", size=8, color="0.4", ha="left")
        axes.set_ylim(top=CEILING)
        show_legend(figure, size=7.5, columnspacing=1.0, title=MARKS)
    return figure


def sensitivity_figure(rows: Rows, label: str) -> "Figure":
    """Figure of the mean sensitivity against n, with bars at sampled means."""
    n, means = points(rows, "mean", "positions")
    floor = floor_below(means)
    labels = ("average sensitivity (positions)", "positions n that are replaced")
    with curves(*labels, floor=floor) as (figure, axes):
        least = means[means > 0].min(initial=1.0) / 4 if floor is None else floor
        low = points(rows, "interval_lower", "positions")
        _, tops = points(rows, "interval_upper", "positions")
        bar = {"color": LOOKS[0]["color"], "linewidth": 1.0, "alpha": 0.6}
        axes.vlines(low[0], np.maximum(low[1], least), tops, **bar)
        draw_values(axes, n, means, 0, label, floor=floor)
        ends = np.array([n.min(), n.max()])
        for name, power in GUIDES.items():
            axes.plot(ends, ends**power, **GUIDE)
            look = {"ha": "left", "va": "center", "color": "0.4"}
            write(axes, name, (ends[1], ends[1] ** power), (4, 0), size=8, **look)
        has_bars = "bars: 95% interval of a mean over samples" if low[0].size else None
        show_legend(figure, title=has_bars)
    return figure


def sweep_figure(rows: Rows, layout: sweeps.Layout, quantity: str) -> "Figure":
    """Figure of column `layout.y` of the rows that have numbers in it, by panel and line."""
    rows = [row for row in rows if sweeps.is_number(row.get(layout.y))]
    cells = layout.group(rows)
    index = {line: k for k, line in enumerate(dict.fromkeys(chain(*cells.values())))}
    shown = [*cells.items()][:: -(-len(cells) // MOST_PANELS)]
    across = min(PANELS_PER_ROW, len(shown))
    down = -(-len(shown) // across)
    size = (COLUMN if across == 1 else 2.8 * across, 0.6 + 3.0 * down)
    places = sweeps.values(rows, layout.x)
    numeric, repeated = all(map(sweeps.is_number, places)), False
    labels: list[str] = []
    with new_figure(size, down, across, sharex=True, sharey=True) as (figure, grid):
        for axes, (panel, own) in zip(grid, shown, strict=False):
            axes.set_title(panel, fontsize=8)
            axes.set_xlabel(sweeps.name_axis(layout.x))
            for line, chosen in own.items():
                at = (row.get(layout.x) for row in chosen)
                x = np.array([*(at if numeric else map(places.index, at))])
                y = np.array([row[layout.y] for row in chosen], float)
                label = "" if line in labels else line
                # A line goes through the medians over seeds and inputs.
                draw_values(axes, x, y, index[line], label, np.median)
                labels.append(line)
                repeated |= len(x) != len(np.unique(x))
        for axes in grid[len(shown) :]:
            axes.set_axis_off()
        for axes in grid[::across]:
            axes.set_ylabel(quantity)
        _scale(grid[0], places, numeric, np.array([row[layout.y] for row in rows]))
        if len(shown) < len(cells):
            figure.suptitle(f"{len(shown)} of {len(cells)} panels", fontsize=8)
        notes = ["lines: medians; light marks: every value"] if repeated else []
        names = ", ".join(map(sweeps.name_axis, layout.lines))
        title = "\n".join([*notes, names]).strip()
        if layout.lines:
            columns = 1 if max(map(len, labels)) > LONG_LABEL else 2
            show_legend(figure, ncols=columns, title=title)
        elif title:
            figure.supxlabel(title, fontsize=8)
    return figure


def _scale(
    axes: "Axes", places: list[Any], numeric: bool, y: Shaped[np.ndarray, "points"]
) -> None:
    """Sets ticks and scales, linear or logarithmic, of the axes that all panels share."""
    if not numeric:
        axes.set_xticks(range(len(places)), [*map(sweeps.show_value, places)])
    elif min(places) > 0 and max(places) >= WIDE_X * min(places):
        axes.set_xscale("log", base=2)
    elif all(isinstance(place, int) for place in places):
        axes.locator_params("x", integer=True)
    sizes = np.abs(y[y != 0])
    if len(sizes) and sizes.max() >= WIDE_Y * sizes.min():
        # A logarithmic axis has no zero: near it the axis is linear where there are zeros.
        near_zero = {} if y.min() > 0 else {"linthresh": sizes.min()}
        axes.set_yscale("symlog" if near_zero else "log", **near_zero)
    label_logarithms(axes)

"""Curves of the rows of commands: training, entropies, Lipschitz constants, simulation."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.decay import fit_decay, show_exponent
from bounds.figures.curve import Decades, draw_bounds
from bounds.figures.primitives import (
    GUIDE,
    LOOKS,
    curves,
    draw_floor,
    draw_guide,
    show_legend,
    write,
)
from bounds.store.table import Table
from jax_models.languages.source import Levels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = Mapping[str, Any]
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
RATIOS = {
    "activation": "‖Δy‖ / ‖Δ embedding‖",
    "logits": "‖Δ logits‖ / ‖Δ embedding‖ (nats per unit)",
}
# Columns of Lipschitz constants: observed, from the widest domain to the narrowest, then
# log10_NAME; claims are those that the proofs do not support.
OBSERVED = {
    "estimate": "estimate of $K_n$: all searches",
    "local": "local norm, sampled inputs",
    "substitution": "substitution, sampled inputs",
}
BOUNDS = {
    "linear": "recursion, linear (bound)",
    "c1": "C1 (bound)",
    "c2": "C2 (bound)",
    "causal": "causal closed form (bound)",
    "printed_tight": "printed, tight F (claim)",
    "printed": "printed (claim)",
}
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


def loss_figure(
    rows: Sequence[Row], lengths: Sequence[int], length: int, levels: Levels
) -> "Figure":
    """Figure of the loss against the step, with the levels at the training's longest n.

    Rows have `step`, and some `loss`, `optimal` and `loss_n` of the measured lengths n.
    """
    batches = _column(rows, "loss", "step")
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
            steps, losses = _column(rows, f"loss_{n}", "step")
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

    Even and odd lengths differ where brackets must balance; each has its own line of a
    level then.

    Args:
        table: Rows as the command `entropy` writes them.
        language: Its name, for the axis.

    Returns:
        A Matplotlib figure, one column of a paper wide.
    """
    parts = [[*table]]
    if any(row.get("p0") is not None for row in table):
        parts = [[row for row in table if row["n"] % 2 == odd] for odd in (0, 1)]
    shape = ("length n (symbols)", 4.2, ("log2", "linear"))
    with curves(f"cross-entropy on {language} (nats)", *shape) as (figure, axes):
        for name, (label, look) in ENTROPIES.items():
            kinds = {r["floor_kind"] for r in table if r.get(name) is not None}
            label += f" ({', '.join(sorted(kinds))})" if "floor" in name else ""
            for n, y in (_column(part, name) for part in parts):
                if len(n):
                    axes.plot(n, y, label=label, markersize=4, **look)
                    label = "_nolegend_"
        if rows := [row for row in table if row.get("model") is not None]:
            errors = 2 * np.array([row["model_stderr"] or 0.0 for row in rows])
            label = "model, ± 2 standard errors"
            axes.errorbar(*_column(rows, "model"), errors, label=label, **MODEL)
        show_legend(figure, size=7.5)
    return figure


def lipschitz_figure(table: Table, target: str) -> "Figure":
    """Figure of the columns of a `LipschitzCurve` with target "activation" or "logits"."""
    with curves(RATIOS[target], height=4.0, scales=("log2", "log")) as (figure, axes):
        for (name, label), look in zip(OBSERVED.items(), LOOKS, strict=False):
            n, values = _column([row for row in table if row.get(name)], name)
            if not len(n):
                continue
            if (fit := fit_decay(n, values)).tells:
                label += f" ($n^{{{show_exponent(-(fit.exponent or 0.0))}}}$)"
            axes.plot(n, values, label=label, linewidth=1.6, markersize=5, **look)
            if name == "substitution" and len(n) > 1:
                # Below a ratio that falls slower than 1/n, too.
                scaled = min(0.5 * values.min() * n.max(), 0.7 * (values * n).min())
                draw_guide(
                    axes, n, scaled / n[0], "1/n", -1, size=8, ha="right", va="top"
                )
        lines = []
        for number, (name, label) in enumerate(BOUNDS.items()):
            n, logs = _column(table, f"log10_{name}")
            look = {"linestyle": (0, (1 + number, 1.5)), "linewidth": 1.3}
            lines += [Decades(label, look, n, logs)] if len(n) else []
        top = _column(table, "estimate")[1].max(initial=np.finfo(float).tiny)
        draw_bounds(axes, [("", "0.35", lines)], top)
        show_legend(figure, size=7.5)
    return figure


def simulation_figure(table: Table) -> "Figure":
    """Figure of errors against temperature, a colour per length, of at most 5 lengths.

    Marks are measured errors of twins, the line of the same colour is the certified bound,
    a star the certificate's temperature at its bound ε, a bar on the floor the theorem's.
    Rows are those of `Simulation.row` with sweeps.
    """
    rows = [row for row in table if row["temperatures"]]
    shown = min(len(rows), MOST_LENGTHS)
    rows = [rows[k] for k in np.linspace(0, len(rows) - 1, shown).round().astype(int)]
    with curves(ERROR, TEMPERATURE, 4.2) as (figure, axes):
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
            axes.axhline(epsilon, linestyle="--", **GUIDE)
            beside = {"xycoords": ("axes fraction", "data"), "ha": "left"}
            write(axes, "ε", (1.0, epsilon), size=8, color="0.4", **beside)
        draw_floor(axes, FLOOR)
        axes.set_yticks([10.0**k for k in range(-15, 4, 3)])
        axes.set_yticks([], minor=True)
        axes.set_ylim(FLOOR / 3, CEILING)
        show_legend(figure, size=7.5, columnspacing=1.0, title=MARKS)
    return figure


def _column(
    rows: Iterable[Row], name: str, x: str = "n"
) -> tuple[np.ndarray, np.ndarray]:
    """Entries of a column against those of x, where there are any."""
    pairs = [(row[x], row[name]) for row in rows if row.get(name) is not None]
    across, up = np.array(pairs, float).reshape(-1, 2).T
    return across, up

"""The figure of a Lipschitz curve: what was observed, and the bounds that are near.

A closed form that is hundreds of decades up would leave nothing of the rest to see; what
lies beyond `DECADES` above the estimate is named above the axes with its size instead.
"""

from typing import TYPE_CHECKING

import numpy as np

from bounds.curves.decay import fit_decay
from bounds.curves.figures import LOOKS, SMALL_LEGEND
from bounds.curves.ticks import label_logarithms
from bounds.lemma5.lipschitz.result import PROPORTIONAL
from bounds.store.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DECADES = 7.0
QUANTITIES = {
    "activation": "‖Δy‖ / ‖Δ embedding‖",
    "logits": "‖Δ logits‖ / ‖Δ embedding‖ (nats per unit)",
}
# Columns that were observed, from the widest domain to the narrowest.
OBSERVED = {
    "estimate": "estimate of $K_n$: all searches",
    "local": "local norm, sampled inputs",
    "tokens": "substitution, searched inputs",
    "substitution": "substitution, sampled inputs",
}
BOUNDS = {
    "linear": "bound: recursion, linear",
    "c1": "bound: C1",
    "c2": "bound: C2",
    "causal": "bound: causal closed form",
    "printed_tight": "claim: printed, tight F",
    "printed": "claim: printed",
}


def lipschitz_figure(table: Table, target: str) -> "Figure":
    """Draw what was observed and the near bounds against n, on logarithmic axes.

    Args:
        table: Rows as `LipschitzCurve` has them.
        target: "activation" or "logits".

    Returns:
        A Matplotlib figure, one column of a paper wide.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator

    with rc_context(SMALL_LEGEND):
        figure = Figure(figsize=(5.2, 4.0), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        _draw_observed(axes, table)
        _draw_bounds(axes, table)
        _draw_slope(axes, table)
        axes.set_xlabel("length n (tokens)")
        axes.set_ylabel(QUANTITIES[target])
        axes.xaxis.set_minor_locator(LogLocator(base=2, subs=()))
        label_logarithms(axes)
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def _values(table: Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns n and the values of a column, where they are there and not zero."""
    pairs = [(row["n"], row[name]) for row in table if row.get(name)]
    return np.array([n for n, _ in pairs], int), np.array([v for _, v in pairs], float)


def _draw_observed(axes: "Axes", table: Table) -> None:
    for (name, label), look in zip(OBSERVED.items(), LOOKS, strict=False):
        n, values = _values(table, name)
        if not len(n):
            continue
        fit = fit_decay(n, values)
        if fit.tells:
            assert fit.exponent is not None
            label += f" ($n^{{{-fit.exponent:z.2f}}}$)"
        axes.plot(n, values, label=label, linewidth=1.6, markersize=5, **look)


def _draw_bounds(axes: "Axes", table: Table) -> None:
    """Draw the bounds that are near in grey, and name the others."""
    _, estimates = _values(table, "estimate")
    top = np.log10(estimates.max(initial=np.finfo(float).tiny)) + DECADES
    far = []
    for number, name in enumerate(PROPORTIONAL):
        n, logs = _logarithms(table, f"log10_{name}")
        near = logs <= top
        dash = (0, (1 + number, 1.5))
        if near.any():
            axes.plot(
                n[near],
                10.0 ** logs[near],
                color="0.35",
                linewidth=1.3,
                linestyle=dash,
                label=BOUNDS[name],
            )
        elif len(n):
            far.append(f"{BOUNDS[name].split(': ')[1]} {_powers(logs)}")
    if far:
        half = (len(far) + 1) // 2
        lines = [", ".join(far[:half]), ", ".join(far[half:])] if half > 1 else far
        axes.set_title("beyond the axis: " + "\n".join(lines), fontsize=7, color="0.3")


def _logarithms(table: Table, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns n and a column of logarithms, where they are there."""
    pairs = [(row["n"], row[name]) for row in table if row.get(name) is not None]
    return np.array([n for n, _ in pairs], int), np.array([v for _, v in pairs], float)


def _powers(logs: np.ndarray) -> str:
    low, high = (f"10^{{{logarithm:.0f}}}" for logarithm in (logs.min(), logs.max()))
    return f"${low}$" if low == high else f"${low}$ to ${high}$"


def _draw_slope(axes: "Axes", table: Table) -> None:
    """Draw a guide of slope -1 below the exact ratios."""
    n, values = _values(table, "substitution")
    if len(n) < 2:
        return
    guide = 0.5 * values.min() * n.max() / n
    # Through the last value, halved: the guide stays below a ratio that falls slower.
    guide *= min(1.0, float((0.7 * values / guide).min()))
    axes.plot(n, guide, color="0.6", linewidth=0.8, zorder=0)
    end = n[-1], guide[-1]
    axes.annotate("1/n", end, color="0.4", fontsize=8, ha="right", va="top")

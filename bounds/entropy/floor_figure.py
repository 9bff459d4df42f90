"""The figure of Theorem 6: a model's cross-entropy between its floor and chance."""

from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.figures import SMALL_LEGEND
from bounds.store.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Levels of the source, from the worst prediction to the best.
LEVELS = {
    "unigram": ("chance: best constant", "#D55E00", "--"),
    "last_symbol": ("best from the last symbol", "#E69F00", "-."),
    "optimal": ("optimum", "#009E73", ":"),
}
FLOORS = {
    "floor_r1": ("floor, read at the last symbol", "#CC79A7", "v"),
    "floor_r2": ("floor, read at an end token", "#56B4E9", "^"),
}
MODEL_COLOUR = "#0072B2"


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
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SMALL_LEGEND):
        figure = Figure(figsize=(5.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log", base=2)
        split = any(row.get("p0") is not None for row in table)
        for name, (label, colour, dash) in LEVELS.items():
            _draw(axes, table, name, label, split, color=colour, linestyle=dash)
        for name, (label, colour, marker) in FLOORS.items():
            kinds = sorted({r["floor_kind"] for r in table if r.get(name) is not None})
            label += f" ({', '.join(kinds)})"
            look = {"color": colour, "marker": marker, "linestyle": "-"}
            _draw(axes, table, name, label, split, markersize=4, **look)
        _draw_model(axes, table)
        axes.set_xlabel("length n (symbols)")
        axes.set_ylabel(f"cross-entropy on {language} (nats)")
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
    return figure


def _draw(
    axes: "Axes", table: Table, name: str, label: str, split: bool, **look: Any
) -> None:
    """Draw one column, even and odd lengths apart where they differ."""
    rows = [row for row in table if row.get(name) is not None]
    for odd in (0, 1) if split else (None,):
        some = [row for row in rows if odd is None or row["n"] % 2 == odd]
        if some:
            values = [row[name] for row in some]
            axes.plot([row["n"] for row in some], values, label=label, **look)
            label = "_nolegend_"


def _draw_model(axes: "Axes", table: Table) -> None:
    """Draw the model's cross-entropy with two standard errors."""
    rows = [row for row in table if row.get("model") is not None]
    if not rows:
        return
    axes.errorbar(
        [row["n"] for row in rows],
        [row["model"] for row in rows],
        yerr=2 * np.array([row["model_stderr"] or 0.0 for row in rows]),
        color=MODEL_COLOUR,
        marker="o",
        markersize=4,
        capsize=2,
        label="model, ± 2 standard errors",
    )

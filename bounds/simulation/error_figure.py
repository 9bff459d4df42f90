"""The figure of a simulation: error against temperature, and what was certified.

One colour per length: marks are measured errors of twins, the line of the same colour is
the certified bound, a star the certificate's temperature at its bound ε, a bar on the
floor the theorem's. Errors that float64 shows as zero stand on the floor.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.figures import LOOKS, SMALL_LEGEND, draw_floor
from bounds.curves.ticks import label_logarithms
from bounds.store.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_LENGTHS = 5
FLOOR = 1e-17
# What is beyond is not an error any more, but another output.
CEILING = 1e3


def simulation_figure(table: Table) -> "Figure":
    """Draw errors and bounds against temperature, for at most five lengths.

    Args:
        table: Rows as `Simulation.row` gives them, with sweeps.

    Returns:
        A Matplotlib figure, one column of a paper wide.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    rows = [row for row in table if row["temperatures"]]
    if len(rows) > MOST_LENGTHS:
        chosen = np.unique(
            np.linspace(0, len(rows) - 1, MOST_LENGTHS).round().astype(int)
        )
        rows = [rows[index] for index in chosen]
    with rc_context(SMALL_LEGEND):
        figure = Figure(figsize=(5.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        axes.set_xscale("log")
        axes.set_yscale("log")
        for row, look in zip(rows, LOOKS, strict=False):
            _draw_length(axes, row, look)
        _draw_epsilon(axes, rows)
        axes.set_ylim(FLOOR / 3, CEILING)
        label_logarithms(axes)
        axes.set_xlabel("temperature τ (score units)")
        axes.set_ylabel("largest error of an activation")
        figure.legend(
            loc="outside lower center",
            ncols=2,
            columnspacing=1.0,
            frameon=False,
            title="marks: measured, lines: certified bound, stars: certified τ, "
            "bars: τ of the theorem;\ndashed: the error ε that is allowed",
            title_fontsize=7.5,
        )
    return figure


def _draw_length(axes: "Axes", row: Mapping[str, Any], look: Mapping[str, Any]) -> None:
    """Draw one length."""
    taus = np.array(row["temperatures"])
    errors, bounds = (np.array(row[name], float) for name in ("errors", "bounds"))
    colour = look["color"]
    zero = errors < FLOOR
    axes.plot(
        taus,
        np.where(zero, FLOOR, errors),
        color=colour,
        marker=look["marker"],
        linestyle="none",
        markersize=4,
        label=f"n = {row['n']}, gap {_gap(row)}: largest of {row.get('measured_on')}",
    )
    axes.plot(taus, np.maximum(bounds, FLOOR / 10), color=colour, linewidth=1.3)
    if row["tau_certificate"] is not None:
        axes.plot(
            row["tau_certificate"],
            row["bound_certificate"] or FLOOR,
            marker="*",
            markersize=11,
            color=colour,
            markeredgecolor="white",
            zorder=4,
        )
    if row["tau_formula"]:
        axes.plot(
            row["tau_formula"],
            FLOOR,
            marker="|",
            markersize=16,
            markeredgewidth=2,
            color=colour,
            zorder=3,
        )


def _gap(row: Mapping[str, Any]) -> str:
    return "none" if row["gap"] is None else f"{row['gap']:.3g}"


def _draw_epsilon(axes: "Axes", rows: list[Mapping[str, Any]]) -> None:
    """Draw the error that is allowed, and the floor."""
    for row in rows[:1]:
        axes.axhline(
            row["epsilon"], color="0.6", linewidth=0.8, linestyle="--", zorder=0
        )
        axes.annotate(
            "ε",
            (1.0, row["epsilon"]),
            xycoords=("axes fraction", "data"),
            fontsize=8,
            color="0.4",
            va="bottom",
        )
    draw_floor(axes, FLOOR)
    ticks = [10.0**k for k in range(-15, 4, 3)]
    axes.set_yticks(ticks)
    axes.set_yticks([], minor=True)

"""Figures of benchmarks: lines on logarithmic axes, one legend for all panels."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.script import Config, Measured, Row
from bounds.figures.primitives import LOOKS, label_logarithms, new_figure, show_legend

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The points of each line, by its label.
Lines = Mapping[str, Sequence[tuple[float, float]]]


@dataclasses.dataclass(frozen=True)
class Panel:
    """One pair of axes and its lines.

    Attributes:
        y_label: What is drawn, with its unit.
        lines: The points of each line, by its label; a label has one look everywhere.
        logarithmic: Whether the y axis is logarithmic.
        x_label: What it is drawn against, with its unit.
    """

    y_label: str
    lines: Lines
    logarithmic: bool = True
    x_label: str = "length n (tokens)"


def lines_by(
    measured: Measured,
    label: Callable[[Config], str],
    value: Callable[[Config, Row], float | None],
    x: str = "n",
) -> dict[str, list[tuple[float, float]]]:
    """Returns lines by label: points of a config's entry `x` and of `value` of its row."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for config, row in measured:
        points = lines.setdefault(label(config), [])
        if (y := value(config, row)) is not None:
            points.append((config[x], y))
    return {name: sorted(points) for name, points in lines.items() if points}


def line_figure(panels: Sequence[Panel], note: str | None = None) -> "Figure":
    """Draws panels side by side, with a common legend and x axes logarithmic to base 2.

    Lines differ in marker and dash as well as colour, to be told apart in grey print.
    """
    labels = list(dict.fromkeys(name for panel in panels for name in panel.lines))
    looks: dict[str, Any] = dict(zip(labels, LOOKS, strict=False))
    handles: dict[str, Any] = {}
    size = 2.8 * len(panels) + 0.4, 3.2
    with new_figure(size, columns=len(panels)) as (figure, grid):
        for axes, panel in zip(grid, panels, strict=True):
            for name, points in panel.lines.items():
                look = {"label": name, "markersize": 4, "linewidth": 1.2, **looks[name]}
                (handles[name],) = axes.plot(*zip(*points, strict=True), **look)
            axes.set_xscale("log", base=2)
            if panel.logarithmic:
                axes.set_yscale("log")
            else:
                axes.set_ylim(bottom=0)
            label_logarithms(axes)
            axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
            axes.grid(color="0.9", linewidth=0.5)
            axes.set_axisbelow(True)
        columns = min(len(labels), 2 * len(panels))
        shown = [handles[name] for name in labels]
        show_legend(figure, handles=shown, labels=labels, ncols=columns, title=note)
    return figure

"""Ticks of logarithmic axes: read at any span, also where no power of ten is in sight."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# An axis with fewer labels says nothing of its scale.
LEAST = 2
# Numbers between these are written out.
PLAIN = (1e-4, 1e5)


def label_logarithms(axes: "Axes", lowest: float = 0.0) -> None:
    """Label powers of the base alone, or, where too few are seen, numbers between them.

    Matplotlib labels the minor ticks of a short axis, over each other.

    Args:
        axes: Drawn, with either axis logarithmic or both.
        lowest: Of the y axis: ticks below are to go, and none of those that are seen.
    """
    from matplotlib.ticker import (
        FixedLocator,
        MaxNLocator,
        NullFormatter,
        NullLocator,
    )

    bottom, top = axes.get_ylim()
    for axis, (low, high) in (
        (axes.xaxis, axes.get_xlim()),
        (axes.yaxis, (max(bottom, lowest), top)),
    ):
        if axis.get_scale() != "log":
            continue
        axis.set_minor_formatter(NullFormatter())
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
        between = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        # The first that shows enough; the last, of equal steps, does at any span.
        for locator in (None, FixedLocator(between), MaxNLocator(3)):
            if locator is not None:
                axis.set_major_locator(locator)
                axis.set_major_formatter(_written)
                axis.set_minor_locator(NullLocator())
            if sum(low <= x <= high for x in axis.get_majorticklocs()) >= LEAST:
                break


def _written(value: float, place: float | None = None) -> str:
    """Returns a tick's label, whatever its place."""
    del place
    if PLAIN[0] <= value < PLAIN[1]:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:.4g}".partition("e")
    times = "" if mantissa == "1" else rf"{mantissa} \times "
    return f"${times}10^{{{int(exponent or 0)}}}$"

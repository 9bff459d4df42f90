"""Average sensitivity against the positions of an input, between guides."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.series import points
from bounds.figures.primitives import (
    GUIDE,
    LOOKS,
    curves,
    draw_values,
    floor_below,
    show_legend,
    write,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITY, POSITIONS = "average sensitivity (positions)", "positions n that are replaced"
# Powers of n that guides follow: of PARITY, and of one layer and one head at most.
GUIDES = {"n": 1.0, "√n": 0.5}


def sensitivity_figure(rows: Sequence[Mapping[str, Any]], label: str) -> "Figure":
    """Figure of the means of rows, bars over the intervals of sampled ones."""
    n, means = points(rows, "mean", "positions")
    floor = floor_below(means)
    with curves(QUANTITY, POSITIONS, floor=floor) as (figure, axes):
        least = means[means > 0].min(initial=1.0) / 4 if floor is None else floor
        low, high = (
            points(rows, f"interval_{end}", "positions") for end in ("lower", "upper")
        )
        bar = {"color": LOOKS[0]["color"], "linewidth": 1.0, "alpha": 0.6}
        axes.vlines(low[0], np.maximum(low[1], least), high[1], **bar)
        draw_values(axes, n, means, 0, label, floor=floor)
        ends = np.array([n.min(), n.max()])
        for name, power in GUIDES.items():
            axes.plot(ends, ends**power, **GUIDE)
            look = {"ha": "left", "va": "center", "color": "0.4"}
            write(axes, name, (ends[1], ends[1] ** power), (4, 0), size=8, **look)
        has_bars = "bars: 95% interval of a mean over samples" if low[0].size else None
        show_legend(figure, title=has_bars)
    return figure

"""Figures of a scan: substitutes at positions, rows against positions, or letters.

A position x substitute heat map marks the symbol that stands there; a position x row map
shows what is largest over substitutes; letters are as high as the largest change. Signed
changes are red and blue about 0; others go from light to dark with their square root, so
that small ones show. A scale ends at the largest value off the diagonal, since a row's own
position outshines all others.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.figures import STYLE, Series, influence_figure
from bounds.curves.letter_figure import letter_figure
from bounds.curves.sequence_figure import drawable
from bounds.influence.scan.result import Scan
from jax_models.arguments import choose_name
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 7.2
# Positions of one row of a heat map, and symbols beyond which names cannot be read.
ACROSS, MOST_SYMBOLS = 128, 64
# Positions of a row, or of a map, up to which each has its name.
NAMED = 64
SIGNED, UNSIGNED = "RdBu_r", "magma_r"
# What can be drawn, and the axis that it needs.
SHAPES = {"auto": None, "map": "row", "heat": "symbol", "letters": None}


def check_shape(shape: str, axes: Sequence[str]) -> None:
    """Refuses a shape of figure that a scan lacks the axis for.

    Args:
        shape: One of `SHAPES`.
        axes: Of the scan.

    Raises:
        InputError: There is no such shape, or no such axis.
    """
    choose_name("figure", shape, tuple(SHAPES))
    if (needed := SHAPES[shape]) is not None and needed not in axes:
        raise InputError(
            f"figure = {shape!r} needs an axis of {needed}s, and the scan has "
            f"{', '.join(axes)}; ask for another figure, or scan with {needed}s kept"
        )


def scan_figure(
    scan: Scan,
    quantity: str,
    name: Callable[[int], str] | None = None,
    shape: str = "auto",
) -> "Figure":
    """Draw a scan: a map where many rows are watched, else a heat map of substitutes.

    What has more axes is drawn as the largest absolute value over those. Of more than 64
    symbols the largest change at every position is drawn.

    Args:
        scan: What was found; not what one's own function made of it.
        quantity: What the values are, with their unit.
        name: Of a symbol; its number by default.
        shape: "map", "heat", "letters" (the input, each symbol as high as the largest
            absolute value at its position), or "auto".

    Returns:
        The figure, a page wide.

    Raises:
        InputError: The scan has no axis that the shape needs.
    """
    from matplotlib import rc_context

    name = name or str
    check_shape(shape, scan.axes)
    row = int(scan.rows[0]) if scan.rows.size == 1 else None
    largest = largest_label(scan, quantity)
    if shape == "letters":
        heights = np.abs(_over(scan, ("position",)))
        names = [name(int(symbol)) for symbol in scan.tokens]
        return letter_figure(scan.positions, heights, names, largest, row)
    few = scan.symbols.shape[-1] <= MOST_SYMBOLS
    with rc_context(STYLE):
        if shape == "map" or (shape == "auto" and "row" in scan.axes):
            values = _over(scan, ("position", "row"))
            return _map(scan, values, quantity, name)
        if shape == "heat" or ("symbol" in scan.axes and few):
            return _heat(scan, _over(scan, ("position", "symbol")), quantity, name)
    values = np.abs(_over(scan, ("position",)))
    there = ~np.isnan(values)
    return influence_figure(
        Series("", scan.positions[there], values[there]), largest, row
    )


def largest_label(scan: Scan, quantity: str) -> str:
    """Returns what the largest absolute value at each position is of.

    Args:
        scan: What was found.
        quantity: What its values are, with their unit.
    """
    chosen = len(scan.axes) > 1 or bool((scan.values < 0).any())
    said = not chosen or quantity.startswith("largest")
    return quantity if said else f"largest absolute value: {quantity}"


def _over(scan: Scan, axes: tuple[str, ...]) -> np.ndarray:
    """The values over these axes; over others the largest absolute value."""
    others = tuple(i for i, axis in enumerate(scan.axes) if axis not in axes)
    if not others:
        return scan.values
    there = ~np.isnan(scan.values)
    largest = np.where(there, np.abs(scan.values), -1).max(axis=others)
    return np.where(there.any(axis=others), largest, np.nan)


def top_of(values: np.ndarray, apart: np.ndarray) -> float:
    """Returns where a scale ends: at the largest absolute value, 1 where all are 0.

    Args:
        values: NaN where there is none.
        apart: Which do not count, where others are not 0.
    """
    scale = values[~np.isnan(values) & ~apart]
    scale = scale if scale.size and scale.any() else values[~np.isnan(values)]
    return float(np.abs(scale).max(initial=0)) or 1.0


def spread(scan: Scan, *tables: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the symbols that are put in anywhere, and tables with a column for each.

    Args:
        scan: What was found.
        tables: Over positions and the scan's symbols [P, K].
    """
    symbols = _columns(scan)
    own = np.broadcast_to(scan.symbols, tables[0].shape)
    at, to = np.nonzero(~np.isnan(tables[0]))
    filled = [np.full((len(scan.positions), symbols.size), np.nan) for _ in tables]
    for table, new in zip(tables, filled, strict=True):
        new[at, np.searchsorted(symbols, own[at, to])] = table[at, to]
    return symbols, *filled


def _colours(values: np.ndarray, apart: np.ndarray) -> dict[str, Any]:
    """How values are coloured, the scale to what is not apart."""
    from matplotlib.colors import Normalize, PowerNorm

    top = top_of(values, apart)
    if (values < 0).any():
        return {"cmap": SIGNED, "norm": Normalize(-top, top)}
    return {"cmap": UNSIGNED, "norm": PowerNorm(0.5, 0.0, top)}


def _bar(
    figure: "Figure", image: Any, axes: Any, values: np.ndarray, text: str
) -> None:
    """Draw the scale, open at an end beyond which values lie."""
    low, high = image.get_clim()
    beyond = np.nanmin(values) < low, np.nanmax(values) > high
    words = {(False, False): "neither", (True, False): "min", (False, True): "max"}
    extend = words.get(beyond, "both")
    bar = figure.colorbar(image, ax=axes, extend=extend, fraction=0.05, pad=0.02)
    bar.set_label(text)


def _map(
    scan: Scan, values: np.ndarray, quantity: str, name: Callable[[int], str]
) -> "Figure":
    """Draw rows against positions: below each other rows, beside each other positions."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 6.2), layout="constrained")
    axes = figure.add_subplot()
    axes.set_facecolor("0.85")  # where nothing is substituted
    apart = scan.positions[:, None] == scan.rows
    image = axes.imshow(
        values.T, aspect="auto", interpolation="nearest", **_colours(values, apart)
    )
    _name(axes.xaxis, scan.positions, scan.tokens, name)
    _name(axes.yaxis, scan.rows, scan.tokens, name)
    axes.set_xlabel("position that is replaced")
    axes.set_ylabel("row that is watched")
    what = "largest over substitutes: " if "symbol" in scan.axes else ""
    _bar(figure, image, axes, values, f"{what}{quantity}")
    return figure


def _heat(
    scan: Scan, values: np.ndarray, quantity: str, name: Callable[[int], str]
) -> "Figure":
    """Draw substitutes against positions, in rows of positions, the wild type marked."""
    from matplotlib.figure import Figure

    symbols, filled = spread(scan, values)
    count = len(scan.positions)
    rows = -(-count // ACROSS)
    across = -(-count // rows)
    size = min(0.14, 3.0 / symbols.size) * symbols.size + 0.55
    figure = Figure(figsize=(WIDTH, max(size, 1.2) * rows + 0.5), layout="constrained")
    panels = figure.subplots(rows, squeeze=False)[:, 0]
    row = int(scan.rows[0]) if scan.rows.size == 1 else -1
    colours = _colours(filled, scan.positions[:, None] == np.array([row]))
    images = []
    for start, axes in zip(range(0, count, across), panels, strict=True):
        these = slice(start, start + across)
        axes.set_facecolor("0.85")
        images.append(
            axes.imshow(
                filled[these].T, aspect="auto", interpolation="nearest", **colours
            )
        )
        wild = scan.tokens[scan.positions[these]]
        known = np.isin(wild, symbols)
        axes.plot(
            np.flatnonzero(known),
            np.searchsorted(symbols, wild[known]),
            "k.",
            markersize=min(4.0, 300 / across),
        )
        axes.set_xlim(-0.5, across - 0.5)
        _name(axes.xaxis, scan.positions[these], scan.tokens, name)
        every = 1 if symbols.size <= 32 else -(-symbols.size // 32)
        shown = range(0, symbols.size, every)
        labels = [drawable(name(int(symbols[i]))) for i in shown]
        axes.set_yticks(shown, labels, fontsize=6, parse_math=False)
        axes.tick_params(axis="y", length=0)
    _bar(figure, images[0], panels.tolist(), filled, quantity)
    figure.supylabel("substitute", fontsize=9)
    watched = f"; row {row} is watched" if row >= 0 else ""
    figure.supxlabel(f"position; a dot marks the symbol there{watched}", fontsize=9)
    return figure


def _columns(scan: Scan) -> np.ndarray:
    """The symbols that are put in anywhere, increasing."""
    symbols = np.unique(scan.symbols)
    return symbols[symbols >= 0]


def _name(
    axis: Any, places: np.ndarray, tokens: np.ndarray, name: Callable[[int], str]
) -> None:
    """Write the symbols along an axis where there is room, else some positions."""
    labels = [drawable(name(int(tokens[place]))) for place in places]
    if len(places) <= NAMED and max(map(len, labels)) == 1:
        both = labels
        if axis.axis_name == "x":
            both = [
                f"{label}\n{place if place % 10 == 0 else ' '}"
                for label, place in zip(labels, places, strict=True)
            ]
        axis.set_ticks(range(len(places)), both, fontsize=7, parse_math=False)
        axis.set_tick_params(length=0)
        return
    every = next(x for x in (1, 5, 10, 20, 50, 100, 10**9) if len(places) <= 16 * x)
    shown = [i for i, place in enumerate(places) if place % every == 0] or [0]
    axis.set_ticks(shown, [str(places[i]) for i in shown], fontsize=7)

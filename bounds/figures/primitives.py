"""Primitives of all figures: curves against n, heat maps, input symbols in rows.

They take arrays, never a model. Logarithmic axes have no zero, so where there are zeros
they are linear below the least decade. Lines differ in marker and dash as well as
colour, to be told apart in grey print. Matplotlib is imported where a figure is drawn,
without global state.
"""

import contextlib
import io
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Shaped

from bounds.curves.series import reduced
from bounds.store.output import FORMATS, write_bytes
from jax_models.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {
    "font.size": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "none",
}
# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (8, 2)), (0, (1, 2)))
# Colour, marker and dash of the lines of one figure, in order.
LOOKS: tuple[Mapping[str, Any], ...] = tuple(
    {"color": colour, "marker": marker, "linestyle": dash}
    for colour, marker, dash in zip(COLOURS, "os^DvPX", _DASHES, strict=True)
)
MAX_SERIES = len(LOOKS)
# Name and number of each symbol of an input; special symbols among residues have none.
Symbols = Sequence[tuple[str, int | None]]
# Inches: one column of a paper, and a page.
COLUMN, PAGE = 5.2, 7.2
LENGTH = "length n (tokens)"
GUIDE: Mapping[str, Any] = {"color": "0.6", "linewidth": 0.8, "zorder": 0}
# Makes a text readable where a line that belongs to something else goes through.
BACKDROP = {"facecolor": "white", "edgecolor": "none", "pad": 0.5, "alpha": 0.8}
# Labels below which an axis does not show its scale, and beyond which they touch.
FEWEST_LABELS, MOST_LABELS = 2, 7
# Positions of one row of symbols, of letters and of longer names.
LETTERS, WORDS, LONGEST_NAME = 64, 40, 12
# Matplotlib's font has Latin letters, and the mark of a space in some vocabularies.
LAST_LETTER, SPACE, BOX = "\u024f", "\u2581", "\u25a1"


@contextlib.contextmanager
def new_figure(
    size: tuple[float, float], rows: int = 1, columns: int = 1, **shared: Any
) -> Iterator[tuple["Figure", list["Axes"]]]:
    """Yields a figure of `size` inches and its axes row by row, in the figures' style."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(STYLE):
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, **shared)
        yield figure, grid.ravel().tolist()


@contextlib.contextmanager
def curves(
    y_label: str,
    y: Float[np.ndarray, "points"] | None = None,
    x_label: str = LENGTH,
    height: float = 3.6,
    x_scale: str = "log",
) -> Iterator[tuple["Figure", "Axes"]]:
    """Yields a figure and its axes, y logarithmic if values `y` are given."""
    with new_figure((COLUMN, height)) as (figure, (axes,)):
        axes.set(xlabel=x_label, ylabel=y_label, xscale=x_scale)
        zero = None if y is None else scale_logarithms(axes, y)
        yield figure, axes
        if zero is not None:
            axes.axhline(0, linestyle=":", **GUIDE)
            axes.set_ylim(bottom=-zero / 3)
        label_logarithms(axes)


def scale_logarithms(axes: "Axes", y: Float[np.ndarray, "points"]) -> float | None:
    """Makes the y axis logarithmic; if y has 0, linear up to the decade returned."""
    if (y > 0).all():
        axes.set_yscale("log")
        return None
    if not y.any():
        return None
    # Of a subnormal number the decade would be 0.
    least = max(np.abs(y[y != 0]).min(), np.finfo(float).tiny * 10)
    least = 10.0 ** math.floor(math.log10(least))
    axes.set_yscale("symlog", linthresh=least)
    axes.locator_params("y", numticks=MOST_LABELS)
    return least


def show_legend(figure: "Figure", size: float = 8, **changed: Any) -> None:
    """Draws one legend of all axes below them, in two columns by default."""
    look: dict[str, Any] = {"fontsize": size, "title_fontsize": size, "ncols": 2}
    figure.legend(loc="outside lower center", frameon=False, **{**look, **changed})


def values(
    axes: "Axes",
    x: Shaped[np.ndarray, "points"],
    y: Float[np.ndarray, "points"],
    index: int,
    label: str,
    reduce: Callable[[np.ndarray], Any] = np.max,
) -> None:
    """Draws all values as light marks; a line through `reduce` of those at each x."""
    axes.plot(x, y, markersize=3, alpha=0.35, **{**LOOKS[index], "linestyle": "none"})
    # Later lines are finer, so that one which coincides with an earlier one shows.
    sizes = {"linewidth": 2.4 - 0.25 * index, "markersize": 7.5 - 0.75 * index}
    axes.plot(*reduced(x, y, reduce), label=label, **sizes, **LOOKS[index])


def guide(
    axes: "Axes", text: str, x: float, end: float = 1.0, dash: str = "--", **look: Any
) -> None:
    """Draws a grey upright line at `x`, with `text` at fraction `end` of its height."""
    axes.axvline(x, linestyle=dash, **GUIDE)
    write(axes, text, (x, end), xycoords=("data", "axes fraction"), **look)


def write(
    axes: "Axes",
    text: str,
    place: tuple[float, float],
    offset: tuple[float, float] = (0, 0),
    size: float = 6,
    **look: Any,
) -> None:
    """Writes text `offset` points from `place`, by default centred above that point."""
    look = {"ha": "center", "va": "bottom", "parse_math": False, **look}
    look |= {"textcoords": "offset points", "fontsize": size}
    axes.annotate(text, place, offset, **look)


def label_logarithms(axes: "Axes") -> None:
    """Labels logarithmic axes at powers of the base, or, if these are few, between."""
    from matplotlib import ticker

    for axis, ends in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if axis.get_scale() != "log":
            continue
        # Matplotlib labels the minor ticks of a short axis, over each other.
        axis.set_minor_formatter(ticker.NullFormatter())
        if (
            sum(ends[0] <= x <= ends[1] for x in axis.get_majorticklocs())
            < FEWEST_LABELS
        ):
            # Equal steps do at any span.
            short = ends[1] < 2 * ends[0]
            between = ticker.LogLocator(subs=(1, 2, 5))
            axis.set_major_locator(ticker.MaxNLocator(3) if short else between)
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(ticker.NullLocator())


@contextlib.contextmanager
def heat_map(
    values: Float[np.ndarray, "across down"],
    top: float,
    quantity: str,
    height: float,
    rows: int = 1,
) -> Iterator[tuple["Figure", list[tuple["Axes", slice]]]]:
    """Yields a heat map of `values`, cut into rows; axes and columns of each row."""
    from matplotlib.colors import Normalize, PowerNorm

    # Light to dark with the square root, so that small values show; signed values are red
    # and blue about 0.
    look: dict[str, Any] = {"cmap": "magma_r", "norm": PowerNorm(0.5, 0.0, top)}
    if (values < 0).any():
        look = {"cmap": "RdBu_r", "norm": Normalize(-top, top)}
    look |= {"aspect": "auto", "interpolation": "nearest"}
    across = -(-len(values) // rows)
    parts = [slice(start, start + across) for start in range(0, len(values), across)]
    with new_figure((PAGE, height), rows) as (figure, panels):
        for part, axes in zip(parts, panels, strict=True):
            # NaN is not drawn, and shows as grey.
            axes.set_facecolor("0.85")
            axes.imshow(values[part].T, **look)
            axes.set_xlim(-0.5, across - 0.5)
        # The scale is open at an end beyond which values lie.
        beyond = 2 * bool(np.nanmax(values) > top) + bool(np.nanmin(values) < -top)
        extend = ("neither", "min", "max", "both")[beyond]
        bar: dict[str, Any] = {"extend": extend, "fraction": 0.05, "pad": 0.02}
        figure.colorbar(panels[0].images[0], ax=panels, label=quantity, **bar)
        yield figure, [*zip(panels, parts, strict=True)]


@contextlib.contextmanager
def symbol_rows(
    symbols: Symbols,
    shown: Iterable[int],
    watched: int | None,
    letters: bool,
    row_height: float,
    note: str,
) -> Iterator[tuple["Figure", list[tuple["Axes", range]]]]:
    """Yields a figure of an input in rows, and the axes and positions of each row."""
    positions = {*shown, *([] if watched is None else [watched])} or {0}
    # From the first to the last position shown. Longer names among letters are left out.
    places = range(min(positions), max(positions) + 1)
    across = min(LETTERS if letters else WORDS, len(places))
    rows = [places[start : start + across] for start in range(0, len(places), across)]
    height = row_height * max(len(rows), 2 if letters else 1) + 0.6
    with new_figure((PAGE, height), len(rows)) as (figure, panels):
        for row, axes in zip(rows, panels, strict=True):
            axes.set_xlim(row.start - 0.7, row.start + across - 0.3)
            # Names of special symbols would stand across their neighbours.
            names = [symbols[p][0] for p in row]
            some = [x if len(x) == 1 or not letters else "" for x in names]
            axes.set_xticks(row, some, rotation=0 if letters else 90, parse_math=False)
            axes.tick_params(axis="x", length=0, labelsize=7 if letters else 6.5)
            below = {"xycoords": ("data", "axes fraction"), "va": "top", "color": "0.4"}
            for position in row if letters else ():
                if (number := symbols[position][1]) is not None and number % 10 == 0:
                    write(axes, str(number), (position, 0), (0, -12), **below)
        counted = "" if letters else f" (positions from {places.start})"
        figure.supxlabel(f"symbol{counted}{note}", fontsize=9)
        yield figure, [*zip(panels, rows, strict=True)]


def drawable(name: str) -> str:
    """Name cut to a dozen letters, with boxes for letters that the font lacks."""
    drawn = "".join(x if x <= LAST_LETTER or x == SPACE else BOX for x in name)
    return drawn if len(drawn) <= LONGEST_NAME else f"{drawn[: LONGEST_NAME - 1]}…"


def save_figure(
    figure: "Figure", stem: str | os.PathLike[str], formats: Sequence[str]
) -> list[Path]:
    """Writes a figure atomically to `stem` with each suffix; returns the files."""
    from matplotlib import rc_context

    paths = []
    for suffix in formats:
        image = io.BytesIO()
        with rc_context(STYLE):
            figure.savefig(image, format=suffix, dpi=300, bbox_inches="tight")
        paths.append(Path(f"{os.fspath(stem)}.{suffix}"))
        write_bytes(paths[-1], image.getvalue())
    return paths


def save_as_named(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Writes a figure in the format of the path's suffix; an `InputError` if unknown."""
    stem, suffix = os.path.splitext(os.fspath(path))
    if suffix[1:] not in FORMATS:
        raise InputError(f"{os.fspath(path)}: figures are {', '.join(FORMATS)} files")
    save_figure(figure, stem, [suffix[1:]])

"""Primitives of all figures: curves against n, heat maps, and symbols of an input in rows.

They take arrays, never a model. Logarithmic axes have no zero, so zeros stand as open marks
on a floor line labelled 0. Lines differ in marker and dash as well as colour, to be told
apart in grey print. Matplotlib is imported where a figure is drawn, without global state.
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
# Labels below which an axis does not show its scale; numbers between these are written out.
FEWEST_LABELS, PLAIN = 2, (1e-4, 1e5)
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
    x_label: str = LENGTH,
    height: float = 3.6,
    scales: tuple[str, str] = ("log", "log"),
    floor: float | None = None,
) -> Iterator[tuple["Figure", "Axes"]]:
    """Yields a figure with one pair of axes; afterwards labels their ticks and the floor."""
    with new_figure((COLUMN, height)) as (figure, (axes,)):
        axes.set(xlabel=x_label, ylabel=y_label, xscale=scales[0], yscale=scales[1])
        yield figure, axes
        if floor is None:
            label_logarithms(axes)
            return
        zero: dict[str, Any] = {"size": 8, "va": "center", "ha": "right"}
        draw_guide(axes, "0", floor, "y", end=0.0, dash=":", offset=(-4, 0), **zero)
        top = axes.get_ylim()[1]
        # The axis is logarithmic from the decade of the least value, 10^0.6 above the floor.
        label_logarithms(axes, lowest=3.9 * floor)
        axes.set_ylim(floor / 2, top)


def show_legend(figure: "Figure", size: float = 8, **changed: Any) -> None:
    """Draws one legend of all axes below them, in two columns by default."""
    look: dict[str, Any] = {"fontsize": size, "title_fontsize": size, "ncols": 2}
    figure.legend(loc="outside lower center", frameon=False, **{**look, **changed})


def draw_values(
    axes: "Axes",
    x: Shaped[np.ndarray, "points"],
    y: Float[np.ndarray, "points"],
    index: int,
    label: str,
    reduce: Callable[[np.ndarray], Any] = np.max,
    floor: float | None = None,
) -> None:
    """Draws all values as light marks, a line through one per x, and zeros on the floor."""
    seen = y > 0 if floor is not None else np.ones(len(y), bool)
    mark = {**LOOKS[index], "linestyle": "none"}
    axes.plot(x[seen], y[seen], markersize=3, alpha=0.35, **mark)
    # Later lines are finer, so that one which coincides with an earlier one shows.
    sizes = {"linewidth": 2.4 - 0.25 * index, "markersize": 7.5 - 0.75 * index}
    axes.plot(*reduced(x[seen], y[seen], reduce), label=label, **sizes, **LOOKS[index])
    if floor is not None:
        zeros = np.unique(x[~seen])
        hollow = {**mark, "markersize": 5, "markerfacecolor": "white"}
        axes.plot(zeros, np.full(len(zeros), floor), **hollow)


def floor_below(y: Float[np.ndarray, "points"]) -> float | None:
    """Height at which zeros are drawn, below the least positive value; None without zeros."""
    if (y > 0).all():
        return None
    least = y[y > 0].min(initial=np.inf)
    return 0.1 if np.isinf(least) else float(10 ** (np.floor(np.log10(least)) - 0.6))


def draw_guide(
    axes: "Axes", text: str, at: float, axis: str, end: float = 1.0, **look: Any
) -> None:
    """Draws a grey line at a value of `axis`, with `text` at the share `end` of the line."""
    draw, place, units = axes.axvline, (at, end), ("data", "axes fraction")
    if axis == "y":
        draw, place, units = axes.axhline, (end, at), ("axes fraction", "data")
    draw(at, linestyle=look.pop("dash", "--"), **GUIDE)
    write(axes, text, place, xycoords=units, **look)


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


def label_logarithms(axes: "Axes", lowest: float = 0.0) -> None:
    """Labels powers of the base alone, or, where too few are seen, numbers between them."""
    from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator

    bottom, top = axes.get_ylim()
    for axis, (low, high) in (
        (axes.xaxis, axes.get_xlim()),
        (axes.yaxis, (max(bottom, lowest), top)),
    ):
        if axis.get_scale() != "log":
            continue
        # Matplotlib labels the minor ticks of a short axis, over each other.
        axis.set_minor_formatter(NullFormatter())
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
        between = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
        # The first that shows enough; the last, of equal steps, does at any span.
        for locator in (None, FixedLocator(between), MaxNLocator(3)):
            if locator is not None:
                axis.set_major_locator(locator)
                axis.set_major_formatter(_write_tick)
                axis.set_minor_locator(NullLocator())
            if sum(low <= x <= high for x in axis.get_majorticklocs()) >= FEWEST_LABELS:
                break
    # The y axis has no ticks below `lowest`, if that is not 0.
    for minor in (False, True) if lowest else ():
        ticks = axes.get_yticks(minor=minor)
        axes.set_yticks(ticks[ticks >= lowest], minor=minor)


def _write_tick(value: float, place: float | None = None) -> str:
    """Label of a tick; `place`, which Matplotlib passes, is ignored."""
    if PLAIN[0] <= value < PLAIN[1]:
        return f"{value:g}"
    mantissa, _, exponent = f"{value:.4g}".partition("e")
    times = "" if mantissa == "1" else rf"{mantissa} \times "
    return f"${times}10^{{{int(exponent or 0)}}}$"


@contextlib.contextmanager
def heat_map(
    values: Float[np.ndarray, "across down"],
    top: float,
    quantity: str,
    height: float,
    rows: int = 1,
) -> Iterator[tuple["Figure", list[tuple["Axes", slice]]]]:
    """Yields a figure of values in rows, and the axes and slice across of each row."""
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

"""A scan as one page for a browser, to hover over and zoom into; it asks no network.

Plotly's program is part of the page (5 MB), arrays are base64: a map of 512 x 512 is 9 MB.
What is drawn and how it is coloured is as in `scan_figure`.
"""

import html
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from bounds.figures.scan import (
    MOST_SYMBOLS,
    check_shape,
    largest_label,
    spread,
    top_of,
)
from bounds.influence.scan.result import Scan
from jax_models.errors import InputError

# Colours of a scale by square roots, which Plotly has none of.
STEPS = 32


def open_plotly() -> Any:
    """Returns the package's graph objects.

    Raises:
        InputError: It is not installed.
    """
    try:
        return importlib.import_module("plotly.graph_objects")
    except ImportError as error:
        raise InputError(
            "html figures need the package plotly, which is not installed; install it "
            "with: pip install 'attention-bounds[html]'"
        ) from error


def scan_page(
    scan: Scan,
    quantity: str,
    name: Callable[[int], str] | None = None,
    shape: str = "auto",
) -> bytes:
    """Draw a scan as a page: each cell tells position, symbols, value and radius.

    Args:
        scan: What was found; not what one's own function made of it.
        quantity: What the values are, with their unit.
        name: Of a symbol; its number by default.
        shape: As `scan_figure` takes it; letters become bars.

    Returns:
        The page, UTF-8.

    Raises:
        InputError: Plotly is not installed, or the scan has no axis that the shape needs.
    """
    check_shape(shape, scan.axes)
    plotly, names = open_plotly(), _Names(name or str)
    few = scan.symbols.shape[-1] <= MOST_SYMBOLS
    across = [f"{p} {names(scan.tokens[p])}" for p in scan.positions.tolist()]
    layout: dict[str, Any] = {
        "template": "simple_white",
        "xaxis": {"type": "category", "title": {"text": "position that is replaced"}},
        "yaxis": {"type": "category", "autorange": "reversed"},
    }
    if shape == "map" or (shape == "auto" and "row" in scan.axes):
        values, radius, best = _cells(scan, ("position", "row"), names)
        down = [f"{row} {names(scan.tokens[row])}" for row in scan.rows.tolist()]
        apart, word = scan.positions[:, None] == scan.rows, "row"
        layout["yaxis"]["title"] = {"text": "row that is watched"}
    elif shape == "heat" or (shape == "auto" and "symbol" in scan.axes and few):
        found = _cells(scan, ("position", "symbol"), names)
        symbols, values, radius = spread(scan, *found[:2])
        best, down, word = None, names.unlike(symbols), "substitute"
        apart = scan.positions[:, None] == scan.rows if scan.rows.size == 1 else None
        layout["yaxis"]["title"] = {"text": "substitute"}
    else:
        values, radius, best = _cells(scan, ("position",), names)
        quantity = largest_label(scan, quantity)
        lines = _hover(quantity, scan.kind, best, None).replace("%{z", "%{y")
        figure = plotly.Figure(
            plotly.Bar(
                x=across,
                y=np.abs(values),
                customdata=radius,
                text=best,
                textposition="none",
                hovertemplate=lines,
            ),
            {**layout, "yaxis": {"title": {"text": html.escape(quantity)}}},
        )
        return _written(figure)
    heat = plotly.Heatmap(
        x=across,
        y=down,
        z=values.T,
        customdata=radius.astype(np.float32).T,
        text=None if best is None else best.T,
        colorbar={"title": {"text": html.escape(quantity), "side": "right"}},
        hovertemplate=_hover(quantity, scan.kind, best, word),
        **_colours(values, apart),
    )
    return _written(plotly.Figure(heat, {**layout, "plot_bgcolor": "#d9d9d9"}))


class _Names:
    """Names of symbols as Plotly's labels show them: it reads marks in labels."""

    def __init__(self, name: Callable[[int], str]) -> None:
        self.name = name

    def __call__(self, symbol: Any) -> str:
        return html.escape(self.name(int(symbol)))

    def unlike(self, symbols: np.ndarray) -> list[str]:
        """The names of symbols; of equal ones, each with its number."""
        names = [self(symbol) for symbol in symbols]
        return [
            x if names.count(x) == 1 else f"{x} ({symbol})"
            for x, symbol in zip(names, symbols.tolist(), strict=True)
        ]


def _cells(
    scan: Scan, axes: tuple[str, ...], names: _Names
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The values over axes, their radii, and what the substitutes are called.

    Over other axes the cell largest in absolute value is taken; substitutes are named where
    they are one of these.
    """
    values = scan.values
    radius = np.maximum(scan.upper - values, values - scan.lower)
    others = [i for i, axis in enumerate(scan.axes) if axis not in axes]
    if not others:
        return values, radius, None
    last = tuple(range(-len(others), 0))
    moved = [np.moveaxis(x, others, last) for x in (values, radius)]
    kept = moved[0].shape[: -len(others)]
    flat, off = (x.reshape(*kept, -1) for x in moved)
    at = np.where(np.isnan(flat), -1, np.abs(flat)).argmax(-1)
    flat, off = (np.take_along_axis(x, at[..., None], -1)[..., 0] for x in (flat, off))
    if "symbol" in axes or "symbol" not in scan.axes:
        return np.abs(flat), off, None
    where = [scan.axes[i] for i in others].index("symbol")
    column = np.unravel_index(at, [scan.values.shape[i] for i in others])[where]
    symbols = np.broadcast_to(
        scan.symbols, (len(scan.positions), scan.symbols.shape[-1])
    )
    row = np.arange(len(symbols)).reshape(-1, *[1] * (column.ndim - 1))
    best = [
        names(symbol) if symbol >= 0 else "" for symbol in symbols[row, column].flat
    ]
    return np.abs(flat), off, np.array(best, object).reshape(column.shape)


def _hover(quantity: str, kind: str, best: Any, word: str | None) -> str:
    """What is told of a cell."""
    lines = ["position %{x}"]
    lines += [] if word is None else [f"{word} %{{y}}"]
    lines += [] if best is None else ["largest by substitute %{text}"]
    lines += [f"{html.escape(quantity)}: %{{z:.6g}}"]
    known = kind != "estimated"
    lines += ["radius %{customdata:.2g}"] if known else ["an estimate"]
    return "<br>".join(lines) + "<extra></extra>"


def _colours(values: np.ndarray, apart: np.ndarray | None) -> dict[str, Any]:
    """How values are coloured, the scale to what is not apart."""
    from plotly.colors import sample_colorscale

    top = top_of(values, np.zeros((1, 1), bool) if apart is None else apart)
    if (values < 0).any():
        return {"colorscale": "RdBu_r", "zmin": -top, "zmax": top}
    steps = np.linspace(0, 1, STEPS)
    scale = zip(steps**2, sample_colorscale("magma_r", steps), strict=True)
    return {"colorscale": [[float(x), y] for x, y in scale], "zmin": 0, "zmax": top}


def _written(figure: Any) -> bytes:
    """A page with the figure, the same for the same figure."""
    config = {"scrollZoom": True, "displaylogo": False}
    # By default there is a button that uploads what is drawn.
    config["showSendToCloud"] = False
    return figure.to_html(
        include_plotlyjs=True, include_mathjax=False, div_id="scan", config=config
    ).encode()

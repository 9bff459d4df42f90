"""A scan as one page for a browser, to hover over and zoom into, without a network.

A scan is a table of changes of an output by edits of an input at each position; a
radius bounds the rounding of a change. A shape is a map of watched rows against
positions, a heat map of substitutes, or bars. Plotly's program is part of the page (5
MB), arrays are base64: a map of 512 x 512 is 9 MB. Shapes and colours are those of
`scan_figure`, the same as a Matplotlib figure.
"""

import html
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Float

from bounds.influence.table.cells import Cells
from bounds.influence.table.lines import Residues, place_noun
from bounds.influence.table.view import largest_label, view_scan
from jax_models.errors import InputError

STEPS = 32  # colours of a scale by square roots, which Plotly lacks


def open_plotly() -> Any:
    """Plotly's module of graph objects; raises `InputError` if not installed."""
    try:
        return importlib.import_module("plotly.graph_objects")
    except ImportError as error:
        raise InputError(
            "html figures need the package plotly, which is not installed; install it "
            "with: pip install 'attention-bounds[html]'"
        ) from error


def scan_page(
    scan: Cells,
    quantity: str,
    name: Callable[[int], str] | None = None,
    shape: str = "auto",
) -> bytes:
    """Draw a scan as a page; hovering shows position, symbols, value and radius."""
    view, plotly, named = view_scan(scan, shape), open_plotly(), name or str
    place = place_noun(name)
    across = [_place(scan, named, p) for p in scan.positions.tolist()]
    layout: dict[str, Any] = {
        "template": "simple_white",
        "xaxis": {
            "type": "category",
            "title": {"text": f"{place} that is {scan.edit}"},
        },
        "yaxis": {"type": "category", "autorange": "reversed"},
    }
    best = None
    if view.substitutes is not None:
        texts = [_name(named, x) if x >= 0 else "" for x in view.substitutes.flat]
        best = np.array(texts, object).reshape(view.substitutes.shape)
    if view.shape == "map":
        down = [_place(scan, named, row) for row in view.columns.tolist()]
        word, title = "row", f"{place_noun(name, 'row')} that is watched"
    elif view.shape == "heat":
        down = [_name(named, symbol) for symbol in view.columns]
        # Categories must differ: equal names have the symbol's number too.
        pairs = zip(down, view.columns, strict=True)
        down = [x if down.count(x) == 1 else f"{x} ({symbol})" for x, symbol in pairs]
        word = title = "substitute"
    else:
        quantity = largest_label(scan, quantity)
        # A bar has its value in y, a cell of a map in z.
        lines = _hover(quantity, scan.kind, best, None, place).replace("%{z", "%{y")
        figure = plotly.Figure(
            plotly.Bar(
                x=across,
                y=np.abs(view.values),
                customdata=view.radii,
                text=best,
                textposition="none",
                hovertemplate=lines,
            ),
            {**layout, "yaxis": {"title": {"text": html.escape(quantity)}}},
        )
        return _written(figure)
    layout["yaxis"]["title"] = {"text": title}
    heat = plotly.Heatmap(
        x=across,
        y=down,
        z=view.values.T,
        # Shown in two digits, and half as long in the page.
        customdata=view.radii.astype(np.float32).T,
        text=None if best is None else best.T,
        colorbar={"title": {"text": html.escape(quantity), "side": "right"}},
        hovertemplate=_hover(quantity, scan.kind, best, word, place),
        **_colours(view.values, view.top),
    )
    return _written(plotly.Figure(heat, {**layout, "plot_bgcolor": "#d9d9d9"}))


def _name(name: Callable[[int], str], symbol: Any) -> str:
    """Name of a symbol, escaped for HTML, which Plotly's labels interpret."""
    return html.escape(name(int(symbol)))


def _place(scan: Cells, name: Callable[[int], str], position: int) -> str:
    """Label of a position: number and symbol, or a residue's letter and number."""
    if isinstance(name, Residues):
        return html.escape(name.place(position))
    return f"{position} {_name(name, scan.tokens[position])}"


def _hover(quantity: str, kind: str, best: Any, word: str | None, place: str) -> str:
    """Plotly template of the text shown with the pointer on a map cell or a bar."""
    lines = [f"{place} %{{x}}"]
    lines += [] if word is None else [f"{word} %{{y}}"]
    lines += [] if best is None else ["largest by substitute %{text}"]
    lines += [f"{html.escape(quantity)}: %{{z:.6g}}"]
    known = kind != "estimated"
    lines += ["radius %{customdata:.2g}"] if known else ["an estimate"]
    return "<br>".join(lines) + "<extra></extra>"


def _colours(values: Float[np.ndarray, "..."], top: float) -> dict[str, Any]:
    """Colour scale up to `top`: square root from 0, or two-sided if a value is negative."""
    from plotly.colors import sample_colorscale

    if (values < 0).any():
        return {"colorscale": "RdBu_r", "zmin": -top, "zmax": top}
    steps = np.linspace(0, 1, STEPS)
    # The colour of a share s of the scale stands at s^2.
    scale = zip(steps**2, sample_colorscale("magma_r", steps), strict=True)
    return {"colorscale": [[float(x), y] for x, y in scale], "zmin": 0, "zmax": top}


def _written(figure: Any) -> bytes:
    """Figure as the bytes of an HTML page; equal figures give equal bytes."""
    config = {"scrollZoom": True, "displaylogo": False}
    # By default there is a button that uploads what is drawn.
    config["showSendToCloud"] = False
    return figure.to_html(
        include_plotlyjs=True, include_mathjax=False, div_id="scan", config=config
    ).encode()

"""Pages of scans hold every cell, ask no network, and write names as they are."""

import base64
import json
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from bounds.curves.scan_page import scan_page
from jax_models import InputError
from tests.bounds.figures.test_inputs import letter, made

pytest.importorskip("plotly")


class Sources(HTMLParser):
    """What a page would fetch."""

    found: tuple[str | None, ...] = ()

    def handle_starttag(self, tag, attrs):
        self.found += tuple(v for k, v in attrs if k in ("src", "href", "data"))


def drawn(page):
    """The page's trace and layout."""
    text = page.decode()
    sources = Sources()
    sources.feed(text)
    assert sources.found == ()
    rest = text[text.rindex("Plotly.newPlot(") :]
    rest = rest[rest.index("[") :]
    (trace,), end = json.JSONDecoder().raw_decode(rest)
    rest = rest[end:].lstrip(", \n")
    layout, end = json.JSONDecoder().raw_decode(rest)
    config, _ = json.JSONDecoder().raw_decode(rest[end:].lstrip(", \n"))
    assert config["showSendToCloud"] is False
    return trace, layout


def array(kept):
    """An array as Plotly keeps it."""
    if isinstance(kept, list):
        return np.array(kept)
    flat = np.frombuffer(base64.b64decode(kept["bdata"]), kept["dtype"])
    shape = kept.get("shape")
    return flat.reshape([int(x) for x in shape.split(",")]) if shape else flat


@pytest.mark.parametrize("n", [30, 200])
def test_a_map_tells_positions_rows_values_and_radii(n):
    random = np.random.default_rng(n)
    tokens, values = random.integers(0, 20, n), random.random((n, n))
    ends = {"lower": values - 1, "upper": values + values}
    scan = made(values, "position row", tokens, **ends)
    page = scan_page(scan, "|Δ logits|, nats", letter)
    trace, layout = drawn(page)
    np.testing.assert_array_equal(array(trace["z"]), values.T)
    np.testing.assert_allclose(array(trace["customdata"]), np.ones((n, n)))
    assert trace["x"] == trace["y"]
    assert trace["x"][:2] == [f"{p} {letter(tokens[p])}" for p in (0, 1)]
    assert len(set(trace["x"])) == n
    assert layout["xaxis"]["title"]["text"] == "position that is replaced"
    told = trace["hovertemplate"]
    for part in ("position %{x}", "row %{y}", "nats: %{z", "radius %{customdata"):
        assert part in told
    assert len(page) < 5.5e6 + 20 * n * n
    assert scan_page(scan, "|Δ logits|, nats", letter) == page


def test_what_has_more_axes_names_the_substitute_of_the_largest_change():
    values = np.random.default_rng(0).normal(size=(3, 4, 3, 2))
    values[0, 1] = np.nan
    symbols, upper = [7, 4, 9, 2], values + np.arange(4)[:, None, None]
    axes = "position symbol row target"
    scan = made(values, axes, [4, 0, 1], symbols=symbols, upper=upper)
    trace, _ = drawn(scan_page(scan, "change", letter))
    for p in range(3):
        for row in range(3):
            cells = np.abs(values[p, :, row])
            at = int(np.nan_to_num(cells, nan=-1).max(axis=1).argmax())
            assert array(trace["z"])[row, p] == np.nanmax(cells)
            assert trace["text"][row][p] == letter(symbols[at])
            assert array(trace["customdata"])[row, p] == pytest.approx(at)
    bars, layout = drawn(scan_page(scan, "change", letter, "letters"))
    assert layout["yaxis"]["title"]["text"] == "largest absolute value: change"
    assert array(bars["y"]) == pytest.approx(np.nanmax(np.abs(values), axis=(1, 2, 3)))


def test_marks_in_names_are_no_marks_of_the_page():
    values = np.array([[np.nan, -1.0], [2.0, np.nan]])
    given = {"symbols": [0, 1], "rows": [1], "kind": "estimated"}
    scan = made(values, "position symbol", [0, 1], **given)
    page = scan_page(scan, "a < b", lambda s: "</script><b>")
    trace, _ = drawn(page)
    assert trace["y"] == [f"&lt;/script&gt;&lt;b&gt; ({s})" for s in (0, 1)]
    assert trace["colorbar"]["title"]["text"] == "a &lt; b"
    assert "an estimate" in trace["hovertemplate"]
    assert (trace["zmin"], trace["zmax"]) == (-1, 1)  # the watched row stands apart
    np.testing.assert_array_equal(array(trace["z"]), values.T)


def test_a_page_without_plotly_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    scan = made(np.ones(3), "position", [3, 1, 2])
    with pytest.raises(InputError, match=r"pip install 'attention-bounds\[html\]'"):
        scan.to_html("scan.html")

"""Figures of scans show every cell in its place, the wild type marked."""

import numpy as np
import pytest

from bounds.figures.inputs import influence_figure, scan_figure, sequence_figure
from bounds.figures.primitives import save_figure
from bounds.influence.table.lines import Residues
from bounds.influence.table.result import Scan
from jax_models import InputError


def drawn(figure):
    """Rows of the figure: (position, height) of points, tick labels, texts."""
    return [
        (
            [
                (int(x), float(y))
                for line in axes.lines
                if line.get_marker() == "o"
                for x, y in line.get_xydata()
            ],
            {
                int(p): t.get_text()
                for p, t in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
            },
            [text.get_text() for text in axes.texts],
        )
        for axes in figure.axes
    ]


@pytest.mark.parametrize("n", [3, 66, 67])
def test_every_position_has_its_letter_its_value_and_its_substitute(n):
    names = ["[CLS]", *(("ACDE" * n)[: n - 2]), "[SEP]"]
    x = np.arange(1, n - 1)
    values = 1 / x
    best = [("WY" * n)[k] for k in x]
    influences = dict(zip(x.tolist(), values, strict=True))
    figure = sequence_figure(influences, names, best, "influence", 2)
    rows = drawn(figure)
    assert len(rows) == -(-(n - 2) // 64)
    points = dict(pair for row in rows for pair in row[0])
    assert points == influences
    ticks = {k: v for row in rows for k, v in row[1].items() if v}
    assert ticks == {k: names[k] for k in x.tolist()}
    texts = [text for row in rows for text in row[2]]
    assert [t for t in texts if t in "WY"] == best
    assert texts.count("query") == 1
    assert [t for t in texts if t.isdecimal()] == [str(k) for k in x if k % 10 == 0]


def test_lines_begin_at_zero_where_a_symbol_has_no_influence():
    influences = {0: 0.0, 1: 1e-3, 2: 1.0}
    figure = sequence_figure(influences, "ACD", "CAA", "", None)
    ((points, _, texts),) = drawn(figure)
    (axes,) = figure.axes
    assert dict(points) == influences
    assert axes.get_ylim()[0] == 0
    assert axes.get_yscale() == "symlog"
    assert "query" not in texts


def test_words_are_written_upright_and_may_be_anything(tmp_path):
    names = ["[CLS]", "the", "##ness", "$x$$", "東京", "▁a", "antidisestablishment"]
    influences = {position: position / 6 for position in range(1, 7)}
    figure = sequence_figure(influences, names, names[:0:-1], "influence", 0)
    save_figure(figure, tmp_path / "figure", ["png"])
    ((_, ticks, _),) = drawn(figure)
    assert list(ticks.values()) == [*names[:4], "□□", "▁a", "antidisesta…"]


def test_nothing_to_draw_is_drawn(tmp_path):
    figure = sequence_figure({}, ["[CLS]", "[SEP]"], [], "influence", 1)
    save_figure(figure, tmp_path / "figure", ["png"])


def test_the_influence_along_an_input_is_drawn_with_its_query():
    influences = dict(enumerate([1.0, 0.0, 0.5, 0.25, 0.125]))
    figure = influence_figure(influences, "influence", query=4)
    (axes,) = figure.axes
    (points,) = (line for line in axes.lines if line.get_marker() == "o")
    assert dict(np.asarray(points.get_xydata()).tolist()) == influences
    assert axes.get_ylim()[0] < 0
    assert "query" in [text.get_text() for text in axes.texts]


LETTERS = "ACDEFGHIKLMNPQRSTVWY"


def made(values, axes, tokens, **changed):
    """A scan of letters that has these values, along axes by name."""
    values, tokens = np.asarray(values), np.asarray(tokens)
    at = np.arange(len(tokens))
    listed = {"positions": at, "symbols": np.arange(20), "rows": at}
    fields = dict.fromkeys(("values", "lower", "upper"), values)
    fields |= {"enclosed": np.ones(values.shape, bool), "rounding": "all"}
    axes = tuple(axes.split() if isinstance(axes, str) else axes)
    fields |= {"axes": axes, "target_symbols": None, "tokens": tokens}
    fields |= {"target": "logits", "kind": "exact", "method": "exhaustive"}
    fields |= {"reason": "", "substitutions": 0, "ties": None, "seconds": 0.0}
    fields |= listed | changed
    return Scan(**fields | {name: np.asarray(fields[name]) for name in listed})


def image(axes):
    """The values of a panel's cells [rows, columns], NaN where there are none."""
    (drawn,) = axes.images
    return np.ma.filled(drawn.get_array().astype(float), np.nan)


def letter(symbol):
    return LETTERS[symbol]


def drawn_tokens(n):
    return np.random.default_rng(n).integers(0, 20, n)


@pytest.fixture(params=[30, 128, 129])
def tokens(request):
    return drawn_tokens(request.param)


def test_a_heat_map_has_all_substitutes_and_marks_the_wild_type(tokens):
    n = len(tokens)
    values = np.random.default_rng(1).random((n, 20))
    values[np.arange(n), tokens] = np.nan
    scan = made(values, "position symbol", tokens, rows=[2])
    figure = scan_figure(scan, "‖Δ logits‖₂", letter)
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == -(-n // 128)
    drawn = np.concatenate([image(axes) for axes in panels], axis=1)
    np.testing.assert_array_equal(drawn, values.T)
    marks = [axes.lines[0].get_xydata() for axes in panels]
    starts = np.cumsum([0, *(image(axes).shape[1] for axes in panels)])
    marked = np.concatenate(
        [np.add(m, (s, 0)) for m, s in zip(marks, starts, strict=False)]
    )
    np.testing.assert_array_equal(marked, np.stack([np.arange(n), tokens], 1))
    assert [t.get_text() for t in panels[0].get_yticklabels()] == list(LETTERS)


@pytest.mark.parametrize("first", [-2, 25])
def test_points_of_residues_stand_at_their_numbers(first):
    tokens = np.array([3, 1, 0, 2])
    name = Residues(letter, tokens, (3,), first)  # D is special, and has no number
    scan = made(np.arange(1.0, 5.0), "position", tokens, rows=[3])
    (axes,) = scan_figure(scan, "change", name).axes
    points, *_ = (line for line in axes.lines if line.get_marker() == "o")
    np.testing.assert_array_equal(points.get_xdata(), first + np.arange(3))
    assert axes.get_xlabel() == "residue"
    (axes,) = scan_figure(scan, "change", letter).axes
    assert "position" in axes.get_xlabel()


def test_a_map_has_positions_across_and_rows_down(tokens):
    n = len(tokens)
    values = np.random.default_rng(2).random((n, n))
    values[np.arange(n), np.arange(n)] = 50
    values[1, 2] = 3.0
    figure = scan_figure(made(values, "position row", tokens), "change", letter)
    axes, bar = figure.axes
    np.testing.assert_array_equal(image(axes), values.T)
    # The diagonal does not set the scale, which says that it lies beyond.
    assert axes.images[0].get_clim() == (0, 3)
    assert axes.images[0].colorbar.extend == "max"
    assert "replaced" in axes.get_xlabel()
    assert "watched" in axes.get_ylabel()
    assert bar.get_ylabel() == "change"
    shown = [text.get_text() for text in axes.get_yticklabels()]
    expected = [letter(s) for s in tokens] if n == 30 else None
    assert shown == expected or (expected is None and 6 < len(shown) < 20)


def test_signed_changes_are_about_zero_and_axes_beyond_two_are_largest():
    tokens = np.array([3, 1, 0])
    values = np.zeros((3, 20, 3))
    values[0, 5, 1], values[0, 6, 1] = 1.0, -2.0
    (axes, _) = scan_figure(made(values, "position symbol row", tokens), "x").axes
    assert image(axes)[1, 0] == 2.0
    scan = made(values[:, :, 1], "position symbol", tokens, rows=[1])
    (axes, _) = scan_figure(scan, "x").axes
    assert axes.images[0].get_clim() == (-2, 2)


def test_symbols_of_each_position_stand_in_their_own_row():
    tokens, symbols = np.array([3, 1]), np.array([[7, 4], [4, -1]])
    values = np.array([[0.5, 0.25], [0.75, np.nan]])
    scan = made(values, "position symbol", tokens, symbols=symbols)
    (axes, _) = scan_figure(scan, "x", letter).axes
    np.testing.assert_array_equal(image(axes), [[0.25, 0.75], [0.5, np.nan]])


def test_many_symbols_are_drawn_as_the_largest_of_each_position():
    values = np.random.default_rng(0).random((5, 100))
    scan = made(values, "position symbol", np.arange(5), symbols=np.arange(100))
    (axes,) = scan_figure(scan, "x").axes
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), values.max(axis=1))


def glyphs(panel):
    """Where the panel's glyphs and bars stand, and how high they are."""
    boxes = [patch.get_path().get_extents() for patch in panel.patches]
    boxes = [
        patch.get_transform()
        .transform_bbox(box)
        .transformed(panel.transData.inverted())
        for patch, box in zip(panel.patches, boxes, strict=True)
    ]
    return {round((box.x0 + box.x1) / 2): (box.y0, box.y1) for box in boxes}


@pytest.mark.parametrize(
    ("n", "names"),
    [
        (64, letter),
        (65, letter),
        (81, lambda s: f"##{LETTERS[s]}"),
        (30, lambda s: ".-"[s % 2]),
    ],
)
def test_letters_are_as_high_as_the_largest_change_at_their_position(n, names):
    tokens = drawn_tokens(n)
    values = np.random.default_rng(3).normal(size=(n, 20, 3))
    values[np.arange(n), tokens] = np.nan
    scan = made(values, "position symbol row", tokens, rows=np.arange(3))
    figure = scan_figure(scan, "change", names, "letters")
    across = 64 if len(names(0)) == 1 else 40
    assert len(figure.axes) == -(-n // across)
    drawn = {at: box for panel in figure.axes for at, box in glyphs(panel).items()}
    expected = np.nanmax(np.abs(values), axis=(1, 2))
    assert set(drawn) == set(range(n))
    found = np.array([drawn[at] for at in range(n)])
    np.testing.assert_allclose(found[:, 0], 0, atol=1e-9)
    np.testing.assert_allclose(found[:, 1], expected, rtol=1e-9)
    written = [
        tick.get_text() for panel in figure.axes for tick in panel.get_xticklabels()
    ]
    assert written == [names(s) for s in tokens]


def test_the_watched_rows_own_letter_is_cut_and_says_its_value():
    scan = made([1.0, -2.0, 64.0, np.nan, 0.0], "position", [3, 1, 2, 0, 4], rows=[2])
    (axes,) = scan_figure(scan, "change", letter, "letters").axes
    top = axes.get_ylim()[1]
    assert 2 < top < 3
    shown = {at: high for at, (low, high) in glyphs(axes).items() if low == 0}
    assert shown == pytest.approx({0: 1, 1: 2, 2: top})
    assert "64" in [text.get_text() for text in axes.texts]
    assert "row 2" in axes.figure.get_supxlabel()
    # Signed changes are drawn by their size, which the label says.
    assert axes.figure.get_supylabel() == "largest absolute value: change"


@pytest.mark.parametrize("shape", ["map", "heat", "tree"])
def test_a_figure_of_an_axis_that_is_not_there_is_refused(shape):
    scan = made(np.ones(3), "position", [3, 1, 2])
    with pytest.raises(InputError, match=f"figure = '{shape}'"):
        scan.plot(figure=shape)


def test_a_scan_draws_its_own_file(tmp_path):
    values, both = np.array([[np.nan, 0.5], [-0.25, np.nan]]), np.array([0, 1])
    scan = made(values, "position symbol", both, symbols=both, rows=both[1:])
    scan.plot(tmp_path / "scan.svg", "Δ logits", letter)
    assert "Δ logits" in (tmp_path / "scan.svg").read_text()
    with pytest.raises(InputError, match="figures are png, pdf, svg files"):
        scan.plot(tmp_path / "scan.gif")

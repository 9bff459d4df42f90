"""The picture shows every position, free or fixed, and every line of a possible set."""

from bounds.figures.restriction import restriction_figure
from bounds.restriction import find_restriction
from bounds.restriction.analysis import PartialInput, possible_edges
from tests.bounds.restriction.drawn_models import random_model


def test_a_short_restriction_is_drawn_line_by_line():
    model = random_model(0, num_heads=2)
    found = find_restriction(model, 8)
    figure = restriction_figure(model, found)
    left = {stage.name: stage.partial for stage in found.stages}
    given = PartialInput(found.given, found.symbols)
    before = [given, left.get("layer 0", given)]
    assert len(given.free) == 8
    # Panels from the top: the last layer, before and after; then the first.
    for number, axes in enumerate(figure.axes):
        depth, after = 1 - number // 2, number % 2
        state = found.partial if after else before[depth]
        edges = possible_edges(model, state, found.query, depth)
        assert len(axes.lines) == sum(len(reached) for _, reached in edges)
        words = [text.get_text() for text in axes.texts]
        assert words == ["∗" if t == -1 else str(t) for t in state.tokens]

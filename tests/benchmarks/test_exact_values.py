"""Influences in many digits are the definition."""

import pytest

from benchmarks import reference
from benchmarks.exact_values import exact_values
from bounds.influence import build_request
from tests.architecture import small_model
from tests.written import written


def test_the_values_are_every_substitution_rerun():
    model = small_model(3, d_model=2, d_ff=3, dtype="float64")
    request = build_request(model, [0, 1, 1, 0, 1])
    config, tensors = written(request.model)
    table = reference.influence(config, tensors, request.tokens)
    chosen = [0, 2]
    found = exact_values(request, 30, chosen)
    for index, one in zip(chosen, found, strict=True):
        at, symbol = request.position[index], request.symbol[index]
        assert float(one) == pytest.approx(table[at, symbol], rel=1e-12)

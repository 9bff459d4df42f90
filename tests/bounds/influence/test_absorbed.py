"""A change that rounding absorbs is never called exactly zero."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from bounds.influence.scan import scan
from tests.bounds.influence.models import build

pytestmark = pytest.mark.usefixtures("quick_compilation")
TOKENS = np.random.default_rng(0).integers(0, 3, 6)


def absorbed(size=1e-19, **case) -> Any:
    """What heads write is far below a rounding of the rows that it is added to."""
    model = build({"num_layers": 1, "mask": "none", "num_classes": 3, **case})
    layers = []
    for layer in model.layers:
        attention, block = layer.attention, layer.feed_forward
        attention = dataclasses.replace(
            attention,
            output=size * attention.output,
            output_bias=0 * attention.output_bias,
        )
        block = dataclasses.replace(
            block, w2=jnp.zeros_like(block.w2), b2=jnp.zeros_like(block.b2)
        )
        layers.append(
            dataclasses.replace(layer, attention=attention, feed_forward=block)
        )
    return dataclasses.replace(model, layers=tuple(layers))


@pytest.mark.parametrize("method", ["exhaustive", "partial"])
@pytest.mark.parametrize(
    "case", [{}, {"weighting": "average_hard"}], ids=["softmax", "hard"]
)
def test_differences_of_outputs_enclose_what_they_lose(case, method):
    model = absorbed(**case)
    truth: Any = bounds.compute_influence(model, TOKENS, method="incremental")
    found: Any = bounds.compute_influence(model, TOKENS, method=method)
    assert truth.max > 0
    assert found.max == 0
    there = ~np.isnan(truth.lower)
    assert (truth.upper <= found.upper)[there].all()
    assert found.kind == "enclosure"


@pytest.mark.parametrize("reduce", [None, "none", "max", "mean"])
def test_scans_enclose_it_whatever_is_made_of_them(reduce):
    found = scan(absorbed(), TOKENS, rows=[5], reduce=reduce, method="exhaustive")
    others = ~np.isnan(found.values) & (found.values == 0)
    assert others.any()
    assert (found.upper[others] > 0).all()


def test_the_supremum_is_not_taken_for_an_error_of_passes():
    model = dataclasses.replace(absorbed(), position=None)
    assert 0 < bounds.supremum(model, 4).max < 1e-17


def test_what_masks_keep_away_is_exactly_zero_however_radii_are_asked_for():
    model = build({"num_layers": 1, "mask": "future"})
    for reduce in (None, "none", "max"):
        asked: dict[str, Any] = {"rows": [2], "reduce": reduce, "positions": [1, 4]}
        for rounding in ("all", "none"):
            found = scan(model, TOKENS, rounding=rounding, **asked)
            last = found.values[1]
            there = ~np.isnan(last)
            assert (last[there] == 0).all()
            assert (found.upper[1][there] == 0).all()
            assert found.enclosed[1][there].all()

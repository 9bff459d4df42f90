"""Replaced rows by sums over keys, beside changes of keys that are merged in tiles."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence.propagation import own_rows
from bounds.influence.propagation.first_layer import prepare_first, replace_tokens
from tests.architecture import small_model
from tests.bounds.influence.models import scaled_weights

N = 12
SIZES = {"num_heads": 2, "d_model": 8, "d_ff": 8, "vocab_size": 3}
BY_ROW = {"temperature": jm.PowerTemperature(1.5, -0.3, "position")}
SETTINGS: dict[str, Any] = {
    "no mask": {},
    "future": {"mask": "future"},
    "strict future": {"mask": "strict_future"},
    "a window": {"mask": "future", "window": 3},
    "a temperature by position": {"mask": "future", **BY_ROW},
    "norms": {"layer_norm": "pre"},
    "float32": {"dtype": "float32"},
}


def draw(factor, **options):
    """A random model, the queries of its layer times a factor."""
    model = small_model(3, **{**SIZES, "dtype": "float64", **options})
    return scaled_weights(model, query=factor, query_bias=factor)


def compare(model):
    """Largest difference of both ways, relative to each row's change, in roundoffs."""
    tokens = np.random.default_rng(1).integers(0, 3, N).astype(np.int32)
    at = np.tile(np.arange(N, dtype=np.int32), 2)
    symbol = jnp.asarray((tokens[at] + np.repeat([1, 2], N).astype(np.int32)) % 3)
    tokens, at = jnp.asarray(tokens), jnp.asarray(at)
    first = prepare_first(model, tokens, at[:N])
    replaced = replace_tokens(model, tokens, first, at, symbol)
    given = model.layers[0], first, replaced, at
    found, _ = own_rows.own_rows(*given)
    expected, _ = own_rows.merged_rows(*given)
    away = jnp.abs(found - expected).max(axis=1) / jnp.abs(expected).max(axis=1)
    return float(away.max() / jnp.finfo(model.dtype).eps)


@pytest.mark.parametrize("factor", [1, 20, 400])
@pytest.mark.parametrize("setting", SETTINGS)
def test_sums_over_keys_are_merged_changes_of_keys(setting, factor):
    # Scores of size `factor` are rounded relative to it.
    assert compare(draw(factor, **SETTINGS[setting])) <= 64 * factor


def test_sums_without_their_digits_are_noticed(monkeypatch):
    monkeypatch.setattr(own_rows, "LOSS", np.inf)
    monkeypatch.setattr(own_rows, "LEAST", -np.inf)
    monkeypatch.setattr(own_rows, "LARGEST", np.inf)
    assert not compare(draw(20)) <= 64 * 20

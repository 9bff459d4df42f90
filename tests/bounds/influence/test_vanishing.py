"""Rows that vanish before a norm with epsilon = 0 are refused, with the row, by all."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import vanishing
from jax_models.model.rows import RmsNorm
from tests.architecture import small_model
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import edit_weights
from tests.jax_models.format.pretrained.test_published_parity import published, strings

TOKENS, CLEAN = [0, 1, 2, 0], [0, 2, 2, 0]
# Of d = 6 equal entries the computed mean is 1.25 exactly, or off by a roundoff.
EXACT, ROUNDED = 1.25, 1.1


def build(constant=EXACT, layers=1, norm="pre", epsilon=0.0, **shape):
    """A model of which a row of symbol 1 is constant before the first norm."""
    shape |= {"num_layers": layers, "layer_norm": norm, "vocab_size": 3, "d_model": 6}
    shape |= {"num_heads": 2, "d_ff": 8, "position": None, "dtype": "float64"}
    model = small_model(**shape)
    model = dataclasses.replace(model, embedding=model.embedding.at[1].set(constant))
    return with_norms(model, lambda x: dataclasses.replace(x, epsilon=epsilon))


def with_norms(model, change):
    """The model with both norms of its layers changed."""
    layers = (
        dataclasses.replace(x, norm1=change(x.norm1), norm2=change(x.norm2))
        for x in model.layers
    )
    return dataclasses.replace(model, layers=tuple(layers))


def silenced(model):
    """The model with heads that write nothing."""
    return edit_weights(model, output=jnp.zeros_like, output_bias=jnp.zeros_like)


def deviation(constant):
    row = jnp.full(6, constant)
    return float(jnp.abs(row - row.mean()).max())


def asked(method):
    return lambda model, x: bounds.compute_influence(model, x, method=method)


WAYS = {
    **{x: asked(x) for x in ("exhaustive", "incremental")},
    "scan": bounds.scan,
    "certificate": bounds.certify_influence,
}


@pytest.mark.parametrize(
    ("way", "constant"),
    [*((way, ROUNDED) for way in WAYS), ("exhaustive", EXACT), ("certificate", EXACT)],
)
def test_an_input_is_refused_with_its_row(way, constant):
    place = "^the row at position 1 vanishes before norm1 of layer 0"
    with refused(f"{place}.*epsilon is 0.*positive epsilon"):
        WAYS[way](build(constant), TOKENS)


@pytest.mark.parametrize(
    ("way", "constant"), [("exhaustive", EXACT), ("incremental", ROUNDED)]
)
def test_a_substitution_is_refused_with_its_row(way, constant):
    with refused(r"with symbol 1 put in, the row at position 0 vanishes before norm1"):
        WAYS[way](build(constant), CLEAN)
    found = bounds.compute_influence(build(constant), CLEAN, method=way, symbols=(0, 2))
    assert found.kind == "exact"


def test_the_two_constants_are_of_both_kinds():
    assert deviation(EXACT) == 0
    assert 0 < deviation(ROUNDED) < 1e-15


def test_a_norm_of_another_kind_and_place_names_itself():
    """RMS norms behind the sums, of a row 0 + 0: an embedding, and no heads."""
    norm = RmsNorm(jnp.ones(6), 0.0)
    model = silenced(build(constant=0, norm="post", layers=2))
    model = with_norms(model, lambda _: norm)
    with refused(r"position 1 vanishes before norm1 of layer"):
        bounds.scan(model, TOKENS)


def test_a_final_norm_names_itself_and_a_positive_epsilon_is_answered():
    model = build(epsilon=1e-5)
    assert bounds.compute_influence(model, TOKENS).kind == "exact"
    norm = jm.LayerNorm(jnp.ones(6), jnp.zeros(6), 0.0)
    still = dataclasses.replace(jax.tree.map(jnp.zeros_like, model), final_norm=norm)
    with refused(r"row at position \d+ vanishes before the final norm"):
        bounds.compute_influence(still, TOKENS)


def test_rows_of_the_last_layer_that_nobody_reads_may_vanish():
    """The published PARITY model with epsilon = 0 erases the rows of bits."""
    model = with_norms(published(8), lambda x: dataclasses.replace(x, epsilon=0.0))
    tokens = np.append(strings(8)[0], 2)
    asked = {"target": "logits", "method": "exhaustive", "rounding": "none"}
    found = bounds.compute_influence(model, tokens, **asked)
    assert found.max > 1
    with refused("position 0 vanishes before norm2 of"):
        bounds.scan(model, tokens, rows=0)


def test_without_the_check_a_row_that_vanishes_is_a_number(monkeypatch):
    """Planted: of roundings the norm makes rows of any size, and an influence."""
    monkeypatch.setattr(vanishing, "_divides", lambda operation: False)
    with refused("is not a finite number"):
        asked("exhaustive")(build(EXACT), TOKENS)
    assert asked("incremental")(build(ROUNDED), TOKENS).max_upper > 0


@pytest.mark.parametrize("size", [3, 5, 7])
def test_rounding_of_the_mean_alone_is_no_deviation(size):
    """Of d equal entries that all move alike, whose mean is off by a roundoff."""
    rows = jnp.asarray(np.linspace(1, 4, 400)[:, None] * np.ones(size))
    norm = jm.LayerNorm(jnp.ones(size), jnp.zeros(size), 0.0)
    assert vanishing._vanished(norm, rows, rows * (1 + np.finfo(float).eps)).all()
    apart = rows.at[:, 0].multiply(1 + 1e-12)
    assert not vanishing._vanished(norm, apart, apart).any()


@pytest.mark.parametrize("way", ["incremental", "scan"])
def test_a_substitution_that_vanishes_behind_attention_is_refused(way):
    """Behind a head that writes nothing, where the largest influence is another's."""
    model = silenced(build(ROUNDED, norm="post"))
    asked: dict[str, Any] = {"symbols": (1,), "include_query": True, "method": way}
    function = bounds.compute_influence
    if way == "scan":
        function, asked = bounds.scan, {"rows": "all"}
    with refused("with symbol 1 put in, the row at position"):
        function(model, CLEAN, **asked)


def test_rows_that_no_watched_row_sees_may_vanish():
    model = build(ROUNDED, mask="future")
    ask = functools.partial(bounds.compute_influence, model, query=1, rounding="none")
    assert ask([0, 2, 2, 1], symbols=(0, 2)).max > 0
    assert ask(CLEAN, positions=[3], symbols=(1,)).max == 0

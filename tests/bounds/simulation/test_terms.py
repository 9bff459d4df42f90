"""Every term that a certificate is made of, on models whose numbers are known by hand."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.curves.inputs import SampledInputs
from bounds.simulation.certificate import score_error
from bounds.simulation.compute import consider
from bounds.simulation.measure import measure_hard_model
from bounds.simulation.paper_shape import paper_shape, read_gains
from bounds.simulation.structure import measure_structure
from jax_models.model.attention import Attention
from jax_models.model.feed_forward import FeedForward
from jax_models.model.layer import Layer


def silent(width):
    """A feed-forward block that writes nothing."""
    return FeedForward(
        jnp.ones((1, width)),
        jnp.zeros(1),
        jnp.zeros((width, 1)),
        jnp.zeros(width),
    )


def head(query, key, value, *, query_bias, key_bias=None, cell=None, **options):
    """One average-hard head with the identity as its output matrix."""
    value = jnp.asarray(value, jnp.float64)
    return Attention(
        query=jnp.asarray(query, jnp.float64)[None],
        key=jnp.asarray(key, jnp.float64)[None],
        value=value[None],
        output=jnp.eye(len(value)),
        query_bias=jnp.asarray(query_bias, jnp.float64)[None],
        key_bias=None if key_bias is None else jnp.asarray(key_bias, jnp.float64)[None],
        weighting=jm.AverageHardmax(cell),
        **options,
    )


def model(embedding, *attentions):
    embedding = jnp.asarray(embedding, jnp.float64)
    layers = tuple(Layer(one, silent(embedding.shape[1])) for one in attentions)
    return jm.Transformer(
        embedding, layers, jm.PositionTable(jnp.zeros((4, embedding.shape[1])))
    )


@pytest.mark.parametrize("error", [0.5, 2.0])
def test_the_score_error_is_attained_with_its_query_key_and_joint_terms(error):
    """q = 3x + 5 and k = 7x + 11 in four components, x = 0, scores over √4."""
    four = np.ones((4, 1))
    attention = head(
        3 * four,
        7 * four,
        [[1.0]],
        query_bias=np.full(4, 5.0),
        key_bias=np.full(4, 11.0),
        score="scaled_dot_product",
    )
    measure = measure_hard_model(model([[0.0]], attention), np.zeros((1, 2), int))
    (one,) = measure.heads
    moved = 4 * ((3 * error + 5) * (7 * error + 11) - 5 * 11) / 2
    found = score_error(one, np.array([error]))
    assert moved <= found <= moved * (1 + 1e-12)


def test_rows_that_a_mask_made_different_are_not_known_to_tie():
    """The first row sees nothing, the others ones: their later scores are 0 and 1."""
    first = head(
        [[0, 0]],
        [[1, 0]],
        [[0, 0], [1, 0]],
        query_bias=[1],
        mask="strict_future",
        score="dot_product",
    )
    second = head(
        [[0, 0]],
        [[0, 1]],
        [[0, 0], [0, 1]],
        query_bias=[1],
        cell=4.0,
        score="dot_product",
    )
    measure = measure_hard_model(model([[1, 0]], first, second), np.zeros((1, 3), int))
    assert [one.spread for one in measure.heads] == [0, pytest.approx(1)]


def test_without_a_list_of_inputs_a_wide_cell_ties_what_is_apart():
    attention = head([[0]], [[1]], [[1]], query_bias=[1], cell=4.0, score="dot_product")
    wide = model([[0], [0.25]], attention)
    considered = consider(wide, 4, SampledInputs("random", (0, 1), None, 2, 0), 0)
    assert considered.unlisted is not None
    measure = measure_structure(wide, considered.unlisted)
    assert 0.25 <= measure.spread <= 0.25 * (1 + 1e-12)


def test_gelu_is_steeper_than_relu():
    block = FeedForward(
        jnp.ones((1, 2)), jnp.zeros(1), jnp.ones((2, 1)), jnp.zeros(2), "gelu"
    )
    # Its slope is largest at √2: Φ(√2) + √2 φ(√2).
    steepest = 1.1289041
    gain = read_gains(block)[1]
    assert (gain >= steepest).all()
    assert (gain <= 1.01 * steepest).all()


def test_biases_are_weights_of_one_coordinate_more():
    options = {"score": "dot_product"}
    attention = head([[1]], [[1]], [[1]], query_bias=[9], **options)
    shape = paper_shape(model([[0]], attention))
    assert (shape.width, shape.parameter) == (2, pytest.approx(9))


def test_the_output_bias_is_added_to_one_head_alone():
    """Two heads write 20 each, and -10 is added: 10 and 20, or 20 and 10."""
    one = head([[1]], [[1]], [[1]], query_bias=[1], score="dot_product")
    names = ("query", "key", "value", "query_bias")
    two = {name: jnp.concatenate([getattr(one, name)] * 2) for name in names}
    attention = dataclasses.replace(
        one,
        **two,
        output=jnp.ones((1, 2)),
        value_bias=jnp.full((2, 1), 20.0),
        output_bias=jnp.asarray([-10.0]),
    )
    assert paper_shape(model([[0]], attention)).parameter == pytest.approx(20)

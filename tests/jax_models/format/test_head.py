"""A head of several operations is read back as it is, or refused by what is wrong in it."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.format.build import build_model
from jax_models.model.architecture import HEADS
from jax_models.model.rows import ACTIVATIONS, Affine, LayerNorm, Product
from jax_models.run.evaluate import linear_readout
from tests.architecture import with_architecture
from tests.written import written

SHAPE = {"num_layers": 1, "num_heads": 2, "d_model": 4, "d_ff": 3, "vocab_size": 3}
NORM = {"norm": "layer_norm", "epsilon": 1e-5}


pytestmark = pytest.mark.usefixtures("quick_compilation")


@functools.cache
def draw(head="masked_lm", **options):
    shape = {**SHAPE, "num_classes": 5, "dtype": "float64", "layer_norm": "pre"}
    return jm.random_transformer(
        jax.random.key(0), **with_architecture(**{**shape, **options}, head=head)
    )


@pytest.mark.parametrize("head", HEADS)
def test_logits_have_the_width_that_the_model_says(head):
    model = draw(head)
    assert jm.apply_logits(model, np.asarray([0, 2, 1])).shape == (3, model.classes)


def test_the_embedding_is_stored_once():
    model = draw("masked_lm")
    _, tensors = written(model)
    assert "head.3.weight" not in tensors
    assert tensors["head.3.bias"].shape == (model.vocab_size,)


def test_another_embedding_is_another_decoder():
    model = draw("tied")
    twice = dataclasses.replace(model, embedding=2 * model.embedding)
    row, bias = jnp.arange(4.0), model.readout.bias
    assert bias is not None
    one, two = (
        x.head.value({"final": row})[x.head.output] - bias for x in (model, twice)
    )
    np.testing.assert_allclose(two, 2 * one, 1e-14)


def test_a_tied_head_is_an_affine_read_out():
    readout = linear_readout(draw("tied"))
    assert readout.weight.shape == (3, 4)


@pytest.mark.parametrize("head", ["masked_lm", "pooler", "classifier"])
def test_what_needs_one_map_names_the_operations_of_another_head(head):
    with pytest.raises(jm.InputError, match=r"head is made of Affine, (Relu|Tanh)"):
        linear_readout(draw(head))


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("linear", "head = 'linear'; expected a list"),
        ([], r"head = \[\]; expected a list"),
        (["linear", "swish"], r"head\[1\] = 'swish'.*embedding.*gelu"),
        (["embedding", "tanh"], r"head\[0\] = 'embedding' comes last"),
        (["linear", {"norm": "batch"}], r"head\[1\].norm = 'batch'"),
        (["linear", {"norm": "layer_norm"}], r"head\[1\].epsilon = None"),
        ([{**NORM, "scale": 1}], r"head\[0\].*unknown key 'scale'"),
        (["tanh", "linear"], "tensor 'head.1.weight' is missing"),
        (["linear", "relu"], "unexpected tensors.*head.2.scale"),
        (["linear", "relu", NORM, "linear"], "'head.3.weight' is missing"),
    ],
)
def test_a_bad_head_is_refused_by_what_is_wrong(entry, message):
    config, tensors = written(draw())
    with pytest.raises(jm.InputError, match=message):
        build_model({**config, "head": entry}, tensors)


def test_an_embedding_of_another_width_is_no_decoder():
    config, tensors = written(draw())
    narrow = {"head.0.weight": np.ones((2, 4)), "head.0.bias": np.ones(2)}
    norm = {f"head.2.{name}": np.ones(2) for name in ("scale", "bias")}
    with pytest.raises(jm.InputError, match=r"rows of width 4; what comes before.* 2"):
        build_model(config, {**tensors, **narrow, **norm})


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((Product(),), r"head\[0\] = 'Product'"),
        ((Affine(jnp.ones((2, 3))),), r"head.0.weight.*\(2, 3\)"),
        ((ACTIVATIONS["tanh"], LayerNorm(jnp.ones(4), jnp.ones(3))), "head.1.bias"),
        ((), r"head = \[\]"),
        (("tanh",), r"model.readout.steps\[0\] = 'tanh'"),
    ],
)
def test_a_bad_head_in_memory_is_refused_too(steps, message):
    with pytest.raises(jm.InputError, match=message):
        jm.apply_logits(
            dataclasses.replace(draw(), readout=jm.Head(steps)), np.asarray([0, 1])
        )


def test_a_bias_of_the_embedding_without_the_embedding_is_refused():
    head = jm.Head((ACTIVATIONS["tanh"],), jnp.ones(3))
    with pytest.raises(jm.InputError, match=r"unexpected tensors.*head.1.bias"):
        jm.apply_logits(dataclasses.replace(draw(), readout=head), np.asarray([0, 1]))


def test_what_a_classifier_needs_is_said():
    with pytest.raises(jm.InputError, match=r"classifier.*needs num_classes"):
        draw("classifier", num_classes=None)

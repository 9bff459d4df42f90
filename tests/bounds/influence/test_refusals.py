"""What `compute_influence` refuses, and the one clear error that it gives."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.influence import METHODS, compute_influence
from tests.bounds.influence.asking import on_host
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import TOKENS, build

pytestmark = pytest.mark.usefixtures("quick_compilation")
MODEL = build({"num_layers": 1, "mask": "none"})
N = len(TOKENS)


def row_sum(tokens):
    return np.asarray([float(tokens.sum())])


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"query": N}, r"query = 12 .* n = 12; expected -12 to 11"),
        ({"query": -N - 1}, r"query = -13"),
        ({"symbols": [0, 3]}, r"symbols\[1\] = 3; .* 0 to 2"),
        ({"symbols": [-1]}, r"symbols\[0\] = -1"),
        ({"positions": [N]}, r"positions\[0\] = 12; .* 0 to 11"),
        ({"positions": [-1]}, r"positions\[0\] = -1"),
        ({"positions": [0.5]}, r"positions\[0\] = 0.5; expected an integer"),
        ({"positions": "ab"}, "positions = 'ab'; expected a sequence"),
        ({"query": 0.5}, "query = 0.5; expected an integer"),
        ({"method": "lumpedd"}, "method = 'lumpedd'; .*auto.*incremental.*exhaustive"),
        ({"target": "row"}, "target = 'row'.*activation.*logits"),
        ({"keep": "all"}, "keep = 'all'.*pairs.*position_max"),
        ({"ties": "maybe"}, "ties = 'maybe'.*error.*warn.*ignore"),
        ({"dtype": "float32"}, "dtype = float32 .* float64"),
    ],
    ids=str,
)
def test_a_question_that_does_not_fit_is_refused(question, message):
    with refused(message):
        compute_influence(MODEL, TOKENS, **question)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [
        ([], "the empty word"),
        ([[[0]]], r"shape \(1, 1, 1\)"),
        ([0, 7], "token 7 at position 1"),
        ([0.5, 1.0], "integers"),
    ],
    ids=str,
)
def test_tokens_that_do_not_fit_are_refused(tokens, message):
    with refused(message):
        compute_influence(MODEL, tokens)


def test_a_function_needs_sensible_tokens():
    for tokens, message in (
        ([], "the empty word"),
        ([0, 3], "token 3 at position 1"),
        ([0.5, 1.0], "integers"),
    ):
        with refused(message):
            compute_influence(on_host(row_sum, 3), tokens)


def test_a_method_that_cannot_do_the_model_says_why():
    shallow = build({"num_layers": 0})
    with refused(r"incremental.*the model has none.*auto"):
        compute_influence(shallow, TOKENS, method="incremental")
    with refused(r"incremental.*bare function"):
        compute_influence(on_host(row_sum, 3), TOKENS, method="incremental")


def test_logits_need_a_readout():
    mute = dataclasses.replace(MODEL, readout=None)
    with refused("no read-out"):
        compute_influence(mute, TOKENS, target="logits")


def test_float64_needs_x64():
    with jax.enable_x64(False), refused("enable"):
        compute_influence(MODEL, TOKENS)


def test_a_dtype_that_is_the_models_own_is_an_assertion_that_holds():
    asked, plain = (
        compute_influence(MODEL, TOKENS, dtype=x) for x in ("float64", None)
    )
    assert asked.max == plain.max


@pytest.mark.parametrize("method", list(METHODS))
def test_an_influence_that_is_not_finite_is_refused(method):
    # A final norm with epsilon 0 divides a constant row by its deviation, 0.
    constant = jax.tree.map(jnp.zeros_like, MODEL)
    norm = jm.LayerNorm(jnp.ones(8), jnp.zeros(8), 0)
    model = dataclasses.replace(constant, position=None, final_norm=norm)
    with refused(r"row at position \d+ vanishes before the final norm"):
        compute_influence(model, TOKENS, method=method)


def test_a_function_whose_value_is_not_finite_is_refused():
    def broken(tokens):
        return np.asarray([0.0, np.inf if tokens[3] == 0 else 1.0])

    tokens = np.ones(5, int)
    with refused("position 3, symbol 0"):
        compute_influence(on_host(broken, 2, check=False), tokens)

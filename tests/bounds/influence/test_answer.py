"""Many inputs at once, what is no input or no model, and keywords that moved."""

import re

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from bounds import Run
from bounds.influence.answer import MOVED_OF_BOTH, MOVED_OF_INFLUENCE
from bounds.influence.targets.log_probability_sum import LogProbabilitySum
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import build

INPUTS = ([0, 1, 1, 0], [1, 1, 0, 1])


MODEL = build({"num_layers": 1, "vocab_size": 2})


@pytest.mark.parametrize(
    ("ask", "tokens"),
    [
        (bounds.compute_influence, jnp.array(INPUTS)),
        (bounds.compute_influence, list(INPUTS)),
        (bounds.scan, np.array(INPUTS)),
        (bounds.scan, (INPUTS[0], np.array([1, 0]))),
    ],
    ids=["JAX's", "lists", "array", "of different lengths"],
)
def test_each_answer_is_that_of_the_input_alone(ask, tokens):
    found = ask(MODEL, tokens=tokens, positions=[0])
    assert isinstance(found, list)
    assert len(found) == len(tokens)
    for one, own in zip(found, tokens, strict=True):
        alone = ask(MODEL, own, positions=[0])
        np.testing.assert_array_equal(one.lower, alone.lower)
        np.testing.assert_array_equal(one.upper, alone.upper)


def test_a_checkpoint_is_of_one_input(tmp_path):
    with refused("checkpoint keeps the state of one input"):
        bounds.compute_influence(
            MODEL, INPUTS, method="screened", run=Run(checkpoint=tmp_path / "kept.npz")
        )


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (np.zeros((2, 2, 2), int), r"shape \(2, 2, 2\); expected one .*, or many"),
        ([[0, 1], [0, [1]]], r"tokens = \[0, \[1\]\]"),
        ("01", r"tokens = '01'; expected integers, one for each symbol"),
        (None, r"tokens = None; expected integers"),
        ([[0, 1], [0.5, 1]], "tokens have type float64; expected integers"),
        (3, r"tokens have shape \(\); expected one sequence"),
        ([0, 7], "token 7 at position 1"),
    ],
)
def test_what_is_no_batch_is_refused(tokens, told):
    with refused(told):
        bounds.scan(MODEL, tokens)


@pytest.mark.parametrize("name", ["compute_influence", "scan", "certify_influence"])
@pytest.mark.parametrize("wrong", ["exchanged", "model.safetensors", None])
def test_what_is_no_model_is_told_what_was_expected(name, wrong):
    tokens = np.array(INPUTS[0])
    given = (tokens, MODEL) if wrong == "exchanged" else (wrong, tokens)
    with refused(r"of a Transformer|expected a Transformer"):
        getattr(bounds, name)(*given)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        *((bounds.compute_influence, name) for name in MOVED_OF_INFLUENCE),
        *((bounds.scan, name) for name in MOVED_OF_BOTH),
    ],
)
def test_a_keyword_that_moved_names_its_new_place(name, call):
    with pytest.raises(
        TypeError, match=re.escape(f"{name!r} since 0.2: it is ")
    ) as told:
        call(MODEL, INPUTS[0], **{name: None})
    assert MOVED_OF_INFLUENCE[name] in str(told.value)


def test_a_scan_does_not_advise_methods_that_it_refuses():
    with pytest.raises(TypeError, match="unexpected keyword argument 'budget'"):
        bounds.scan(MODEL, INPUTS[0], budget=3)  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize("given", [{"query": 1}, {"include_query": True}])
def test_a_target_of_several_rows_has_no_query(given):
    target = LogProbabilitySum((0, 1), (0, 1))
    with refused(f"{next(iter(given))} = .*reads rows of its own"):
        bounds.compute_influence(MODEL, INPUTS[0], target=target, **given)

"""What version 2 alone can say: each method does it, or refuses it by name."""

import dataclasses
import functools
import itertools
import math
from typing import Any

import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.influence.targets import change as target
from bounds.restriction.checker import check_certificate
from bounds.simulation.paper_shape import check_simulable
from jax_models.format.config import VERSION_1
from jax_models.model.rows import ACTIVATIONS, NORMS
from tests.bounds.influence.expect import encloses, refused
from tests.bounds.influence.many_digits import DIGITS
from tests.bounds.influence.models import TOKENS
from tests.bounds.influence.models import build as draw
from tests.written import written


def build(case, **more):
    """Model of a case; with norm1 = False its first layer has no norm before attention."""
    model = draw({key: value for key, value in case.items() if key != "norm1"}, **more)
    if case.get("norm1", True):
        return model
    first, *others = model.layers
    first = dataclasses.replace(first, norm1=None)
    return dataclasses.replace(model, layers=(first, *others))


def newer(name, table):
    """The words that version 1 does not have."""
    return [word for word in table if word not in VERSION_1[name]]


WORDS = [
    *({"activation": word} for word in newer("activation", ACTIVATIONS)),
    *(
        {"norm": word, "layer_norm": place, "final_norm": True}
        for word, place in itertools.product(newer("norm", NORMS), ("pre", "post"))
    ),
]
PIECES: dict[str, dict[str, Any]] = {
    **{"-".join(map(str, case.values())): case for case in WORDS},
    "swiglu": {"activation": "silu", "gated": True, "layer_norm": "pre"},
    "geglu": {"activation": "gelu", "gated": True, "layer_norm": "post"},
    "bare reglu": {"gated": True, "block_biases": False},
    "gated squares": {"activation": "relu_squared", "gated": True, "combine": "concat"},
    **{
        f"{head} head": {"head": head, "target": "logits", "activation": "gelu", **more}
        for head, more in (
            ("tied", {}),
            ("masked_lm", {"layer_norm": "post"}),
            ("pooler", {"final_norm": True}),
            ("classifier", {"layer_norm": "pre"}),
        )
    },
    "repeated layers": {"num_layers": 2, "same_layers": (0, 0)},
    "parallel": {"combine": "parallel"},
    "parallel-pre": {"combine": "parallel", "layer_norm": "pre"},
    "no norm1": {"layer_norm": "pre", "norm1": False},
    "no biases in blocks": {"block_biases": False, "activation": "gelu"},
}
# In norm by norm and gelu by tanh the plain transformer of the tests is not written.
BLOCKS = ["relu_squared", "swiglu", "geglu", "bare reglu", "gated squares"]
PLAIN = [name for name in PIECES if "norm-" not in name and "tanh" not in name]


def influence(model, tokens, truth, method):
    found = bounds.compute_influence(model, tokens, method=method, target=truth.target)
    assert found.max_lower <= truth.max_upper
    assert truth.max_lower <= found.max_upper <= 1.05 * truth.max_upper


def certificate(model, tokens, truth):
    found = bounds.certify_influence(model, tokens, target=truth.target)
    there = ~np.isnan(found.upper)
    assert (found.upper[there] >= truth.lower[there]).all()
    # Of a bent head its Lipschitz constant over all inputs is what is known.
    bent = truth.target == "logits" and len(model.head.steps) > 1
    assert found.max_upper <= (math.inf if bent else 1.05) * truth.max_upper
    assert found.max_upper < math.inf


def closed_form(model, tokens, truth):
    found = bounds.closed_form_bounds(model, len(tokens), target=truth.target)
    assert math.exp(found.corrected.others.log_value) >= truth.max_lower


METHODS = {
    "incremental": functools.partial(influence, method="incremental"),
    "certificate": certificate,
    "closed form": closed_form,
    "screened": functools.partial(influence, method="screened"),
}


def answer(call):
    """What a call finds; None where it is refused by name."""
    try:
        return call()
    except jm.InputError as error:
        said = str(error)
    assert "rule for" in said or "affine in the final activation, not" in said
    return None


@functools.cache
def brute_force(name):
    model, what = build(PIECES[name]), PIECES[name].get("target", "activation")
    how: Any = {"method": "exhaustive", "target": what}
    return model, bounds.compute_influence(model, TOKENS[:7], **how)


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_holds_or_refuses_by_name(method, name):
    model, truth = brute_force(name)
    answer(lambda: METHODS[method](model, TOKENS[:7], truth))


@pytest.mark.parametrize("name", PLAIN)
def test_the_model_is_the_one_that_the_format_page_says(name):
    model = build(PIECES[name])
    expected = reference.logits(*written(model), TOKENS)
    found = jm.apply_logits(model, TOKENS)
    np.testing.assert_allclose(found, expected, 1e-12, 1e-13)


@pytest.mark.parametrize(
    ("name", "num_layers", "dtype"),
    [
        ("relu_squared", 3, "float32"),
        ("swiglu", 2, "float64"),
        ("geglu", 2, "float32"),
        ("bare reglu", 2, "float64"),
        ("gated squares", 2, "float32"),
        ("parallel", 2, "float64"),
        ("parallel-pre", 2, "float64"),
        ("tied head", 1, "float64"),
        ("masked_lm head", 2, "float64"),
        ("pooler head", 1, "float32"),
        ("classifier head", 1, "float64"),
    ],
)
def test_changes_are_those_of_many_digits_within_the_radius(name, num_layers, dtype):
    case = {**PIECES[name], "num_layers": num_layers, "dtype": dtype}
    model = build(case, seed=num_layers)
    config, tensors = written(model)
    what: Any = case.get("target", "activation")
    exact = reference.influence(
        config, tensors, TOKENS[:6], target=what, arithmetic=DIGITS
    )
    found = bounds.compute_influence(
        model, TOKENS[:6], method="incremental", target=what
    )
    assert encloses(found, exact)


def test_a_head_whose_last_map_is_left_out_is_caught(monkeypatch):
    case: dict[str, Any] = {**PIECES["classifier head"], "num_layers": 1, "d_ff": 3}
    model, tokens = build(case), TOKENS[:6]
    exact = reference.influence(*written(model), tokens, target="logits")
    whole = target.exit_program

    def short(*asked):
        program = whole(*asked)
        return dataclasses.replace(program, output=program.steps[-2].name)

    monkeypatch.setattr(target, "exit_program", short)
    found = bounds.compute_influence(
        model, tokens, method="incremental", target="logits", rounding="none"
    )
    there = ~np.isnan(exact)
    assert not (np.abs(found.upper - exact) <= 1e-6 * exact)[there].any()


@pytest.mark.parametrize("name", PIECES)
def test_a_restriction_is_found_and_checked_or_refused_by_name(name):
    case = PIECES[name]
    hard = build({**case, "weighting": "leftmost_hard", "head": "linear"})
    found = answer(lambda: bounds.find_restriction(hard, 9))
    if found is not None:
        answer(lambda: check_certificate(hard, found.certificate))


@pytest.mark.parametrize("name", BLOCKS)
def test_a_simulation_refuses_operations_without_an_error_gain(name):
    case = {**PIECES[name], "layer_norm": "none", "weighting": "leftmost_hard"}
    with refused(r"has (Product|ReluSquared), whose error"):
        check_simulable(build({**case, "combine": "residual"}))

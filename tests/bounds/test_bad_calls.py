"""Bad values for the arguments of every public function: InputError on one line."""

import inspect
import os
import random

import jax
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence.targets.logit_difference import LogitDifference
from tests.architecture import SMALL, small_model
from tests.bounds.influence.expect import refused

pytestmark = pytest.mark.slow

SOFT = small_model(position=None, dtype="float64", num_classes=3)


def drawn(**parts):
    """A random transformer with parts of its architecture."""
    return small_model(architecture=jm.Architecture(**parts))


drawn.__signature__ = inspect.signature(jm.Architecture)
HARD = jm.with_weighting(SOFT, "leftmost_hard")
DIFFERENCE = LogitDifference(1, 0)
TOKENS, SOURCE = [0, 1, 0, 1], jm.get_source("parity", 0.1)
# Each with arguments that are right, of which one is replaced.
CALLS = [
    (bounds.compute_influence, {"model": SOFT, "tokens": TOKENS}),
    (bounds.certify_influence, {"model": SOFT, "tokens": TOKENS}),
    (bounds.supremum, {"model": SOFT, "length": 4}),
    (bounds.search_inputs, {"model": SOFT, "length": 4, "rounds": 1}),
    (bounds.closed_form_bounds, {"model": SOFT, "length": 4}),
    (bounds.read_constants, {"model": SOFT, "length": 4}),
    (bounds.estimate_lipschitz, {"model": SOFT, "length": 4, "restarts": 0}),
    (bounds.lipschitz_curve, {"model": SOFT, "lengths": [4]}),
    (bounds.bound_curve, {"model": SOFT, "lengths": [4]}),
    (bounds.average_sensitivity, {"model": SOFT, "length": 4, "target": DIFFERENCE}),
    (bounds.measure_entropy, {"model": SOFT, "source": SOURCE, "length": 4}),
    (bounds.find_restriction, {"model": HARD, "length": 4}),
    (bounds.find_counterexample, {"model": HARD, "length": 4, "language": "parity"}),
    (bounds.simulate, {"model": HARD, "length": 3}),
    (bounds.simulation_curve, {"model": HARD, "lengths": [3]}),
    (jm.apply, {"model": SOFT, "tokens": TOKENS}),
    (jm.apply_logits, {"model": SOFT, "tokens": TOKENS}),
    (jm.with_temperature, {"model": SOFT, "temperature": 1.0}),
    (jm.with_weighting, {"model": SOFT, "weighting": "softmax"}),
    (jm.with_dtype, {"model": SOFT, "dtype": "float64"}),
    (jm.random_transformer, {"key": jax.random.key(0), **SMALL}),
    (drawn, {}),
    (jm.get_source, {"name": "parity", "probability": 0.5}),
    (jm.get_language, {"name": "parity"}),
    (jm.make_weighting, {"name": "softmax"}),
    (jm.load, {"path": "none"}),
]
VALUES = [
    *(-1, 0, 0.5, 8.5, 10**19, 2**63 - 1, 10**400, True, 1j, "a", "ab", "", b"a"),
    *(float("nan"), float("inf"), -float("inf"), [], [0.5], ["a"], [[0]], (-1,), {}),
    *(np.array([1.5]), np.zeros((2, 2)), np.float64(2.5), object(), range(0), None),
]
# Objects of the caller's, and numbers that only say how long to work.
FREE = {"mesh"}
LONG = {"restarts", "rounds", "steps", "attempts", "num_inputs", "num_layers"}
HUGE = [10**12, 10**23, 2**40, -(10**23)]
BOOLEANS = {
    "include_query",
    "sweep",
    "reverse_pass",
    "final_norm",
    "biases",
    "gated",
}


def bad_calls(count, seed=0):
    """Functions, each with the name of one argument and a value, in a seeded order."""
    found = [
        (function, right, name, value)
        for function, right in CALLS
        for name in inspect.signature(function).parameters
        if name not in FREE | BOOLEANS
        for value in (HUGE if name in LONG else [*VALUES, *HUGE])
        if not (callable(value) and name in ("progress", "report", "remember"))
    ]
    random.Random(seed).shuffle(found)
    return found[:count]


def test_every_bad_argument_is_an_input_error_on_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    count, faults, refused = int(os.environ.get("FUZZ_CALLS", "400")), [], 0
    for function, right, name, value in bad_calls(count):
        about = f"{function.__name__}({name}={str(value)[:30]!r})"
        try:
            function(**{**right, name: value})
        except jm.InputError as error:
            refused += 1
            if "\n" in str(error) or len(str(error)) > 1500:
                faults.append(f"{about}: {str(error)[:200]}")
        except Exception as error:
            faults.append(f"{about}: {error!r}"[:300])
    print(f"{count} calls, {refused} refused, {len(faults)} at fault")
    assert not faults, "\n".join(faults)
    assert refused > count / 2


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (
            lambda: bounds.estimate_lipschitz(SOFT, 4, steps=10**23),
            "from 1 to 2147483647",
        ),
        (lambda: bounds.estimate_lipschitz(SOFT, 4, steps=2**31 - 1), "operations"),
        (
            lambda: bounds.estimate_lipschitz(SOFT, 4, num_inputs=2**31 - 1),
            "operations",
        ),
        (lambda: bounds.search_inputs(SOFT, 4, restarts=2**31 - 1), "operations"),
        (lambda: bounds.bound_curve(SOFT, [4], store=3), "store = 3; expected an open"),
        (
            lambda: bounds.compute_influence(SOFT, TOKENS, run=bounds.Run(progress=3)),
            "progress = 3",
        ),
        (lambda: bounds.scan(SOFT, TOKENS, run=3), "run = 3; expected a bounds.Run"),
        (lambda: bounds.supremum(SOFT, 4, progress=3), "progress = 3"),
        (lambda: bounds.certify_influence(SOFT, TOKENS, progress=3), "progress = 3"),
        (lambda: jm.forward(SOFT, np.zeros(0, int)), "n = 0"),
        (lambda: jm.forward(SOFT, np.array([0, 2])), "token 2 at position 1"),
        (lambda: small_model(scale=-1), "scale = -1"),
        (lambda: jm.get_language("random", 2**40), "num_symbols = 1099511627776"),
    ],
)
def test_what_has_a_range_or_is_a_function_is_checked_before_work(call, complaint):
    with refused(complaint):
        call()

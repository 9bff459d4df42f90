"""Results of public functions print in a line or a few; bad arguments are refused in one."""

import dataclasses
import functools
import inspect
import os
import random

import jax
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence.targets.logit_difference import LogitDifference
from bounds.restriction import check_certificate
from jax_models.arguments import BriefRepr
from jax_models.training import TrainingRun
from tests.architecture import SMALL, small_model
from tests.bounds.influence.expect import refused

SOFT = small_model(position=None, dtype="float64", num_classes=3)
HARD = jm.with_weighting(SOFT, "leftmost_hard")
READER = small_model(vocab_size=3, mask="future", num_classes=3, dtype="float64")
LENGTH, MOST = 48, 1000  # tokens; characters
TOKENS, NUMBERS = np.arange(LENGTH) % 2, np.zeros(LENGTH)
SOURCE, DIFFERENCE = jm.get_source("parity", 0.1), LogitDifference(1, 0)


def drawn(**parts):
    """A random transformer with parts of its architecture."""
    return small_model(architecture=jm.Architecture(**parts))


drawn.__signature__ = inspect.signature(jm.Architecture)
# Each with arguments that are right, of which one is replaced.
CALLS = [
    (bounds.compute_influence, {"model": SOFT, "tokens": TOKENS}),
    (bounds.certify_influence, {"model": SOFT, "tokens": TOKENS}),
    (bounds.supremum, {"model": SOFT, "length": 4}),
    (bounds.search_inputs, {"model": SOFT, "length": 4, "rounds": 1}),
    (bounds.closed_form_bounds, {"model": SOFT, "length": LENGTH}),
    (bounds.read_constants, {"model": SOFT, "length": LENGTH}),
    (bounds.estimate_lipschitz, {"model": SOFT, "length": 4, "restarts": 0}),
    (bounds.lipschitz_curve, {"model": SOFT, "lengths": [4]}),
    (bounds.bound_curve, {"model": SOFT, "lengths": [3, 4]}),
    (bounds.average_sensitivity, {"model": SOFT, "length": 4, "target": DIFFERENCE}),
    (bounds.measure_entropy, {"model": READER, "source": SOURCE, "length": 4}),
    (bounds.find_restriction, {"model": HARD, "length": LENGTH}),
    (bounds.find_counterexample, {"model": HARD, "length": 48, "language": "parity"}),
    (bounds.simulate, {"model": HARD, "length": 3}),
    (bounds.simulation_curve, {"model": HARD, "lengths": [3, 4]}),
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


@functools.cache
def simulated():
    return bounds.simulate(HARD, 4, sweep=True)


RESULTS = {
    call.__name__: functools.partial(call, **right)
    for call, right in CALLS
    if call.__module__.startswith("bounds.")
} | {
    "scan": lambda: bounds.scan(SOFT, TOKENS, rows="all"),
    "verification": lambda: check_certificate(
        HARD, bounds.find_restriction(HARD, 8).certificate
    ),
    "swept": simulated,
    "measure": lambda: simulated().measured,
    "layer": lambda: simulated().measured.layers[0],
    "head": lambda: simulated().measured.heads[0],
    "training": lambda: TrainingRun(READER, NUMBERS, NUMBERS, ((0, NUMBERS),) * LENGTH),
    "model": lambda: READER,
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_a_line_or_a_few(name):
    result = RESULTS[name]()
    text = repr(result)
    assert text == str(result)
    assert text.startswith(type(result).__name__)
    assert text.count("\n") < 3
    assert len(text) <= MOST
    assert "array(" not in text


def test_every_public_dataclass_that_is_a_result_is_among_them():
    made = {"BoundCurve", "Certificate", "Influence", "LipschitzEstimate"}
    made |= {"ModelEntropy", "Restriction", "Scan", "Simulation", "SimulationCurve"}
    made |= {"Supremum", "Frobenius", "Sensitivity"}
    methods = {"Exhaustive", "Incremental", "Lumped", "Partial", "Proposed", "Screened"}
    named = {name: getattr(bounds, name) for name in bounds.__all__}
    every = {k for k, x in named.items() if dataclasses.is_dataclass(x)}
    assert every == made | methods | {"Run"}


@dataclasses.dataclass(frozen=True, repr=False)
class Held(BriefRepr):
    number: float
    table: np.ndarray
    words: tuple[str, ...]
    other: object
    hidden: int = dataclasses.field(default=0, repr=False)


def test_what_is_long_is_shown_by_its_size():
    held = Held(0.5, np.zeros((3, 4)), ("a",) * 99, {"a": 1})
    line = "Held(number=0.5, table=float64[3, 4], words=<99 entries>, other={'a': 1})"
    assert repr(held) == line
    assert "other=Held(" in repr(dataclasses.replace(held, other=held))


VALUES = [
    *(-1, 0, 0.5, 8.5, 10**19, 2**63 - 1, 10**400, True, 1j, "a", "ab", "", b"a"),
    *(float("nan"), float("inf"), -float("inf"), [], [0.5], ["a"], [[0]], (-1,), {}),
    *(np.array([1.5]), np.zeros((2, 2)), np.float64(2.5), object(), range(0), None),
]
# Objects of the caller's, booleans, and numbers that only say how long to work.
FREE = {
    "mesh",
    "include_query",
    "sweep",
    "reverse_pass",
    "final_norm",
    "biases",
    "gated",
}
LONG = {"restarts", "rounds", "steps", "attempts", "num_inputs", "num_layers"}
HUGE = [10**12, 10**23, 2**40, -(10**23)]


def bad_calls(count, seed=0):
    """Functions, each with the name of one argument and a value, in a seeded order."""
    found = [
        (function, right, name, value)
        for function, right in CALLS
        for name in inspect.signature(function).parameters
        for value in (HUGE if name in LONG else [*VALUES, *HUGE])
        if name not in FREE
        if not (callable(value) and name in ("progress", "report", "remember"))
    ]
    random.Random(seed).shuffle(found)
    return found[:count]


@pytest.mark.slow
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


def influence(**run):
    method = run.pop("method", "auto")
    return bounds.compute_influence(SOFT, TOKENS, method=method, run=bounds.Run(**run))


def unread(name):
    return f"^{name} = .* has no effect: "


BAD = [
    (lambda: bounds.estimate_lipschitz(SOFT, 4, steps=10**23), "from 1 to 2147483647"),
    (lambda: bounds.estimate_lipschitz(SOFT, 4, steps=2**31 - 1), "operations"),
    (lambda: bounds.estimate_lipschitz(SOFT, 4, num_inputs=2**31 - 1), "operations"),
    (lambda: bounds.search_inputs(SOFT, 4, restarts=2**31 - 1), "operations"),
    (lambda: bounds.bound_curve(SOFT, [4], store=3), "store = 3; expected an open"),
    (lambda: influence(progress=3), "progress = 3"),
    (lambda: bounds.scan(SOFT, TOKENS, run=3), "run = 3; expected a bounds.Run"),
    (lambda: bounds.supremum(SOFT, 4, progress=3), "progress = 3"),
    (
        lambda: bounds.find_restriction(HARD, 4, remember=None),
        "remember = None; expected",
    ),
    (lambda: jm.forward(SOFT, np.zeros(0, int)), "n = 0"),
    (lambda: jm.forward(SOFT, np.array([0, 2])), "token 2 at position 1"),
    (lambda: small_model(scale=-1), "scale = -1"),
    (lambda: jm.get_language("random", 2**40), "num_symbols = 1099511627776"),
    # Arguments that nothing would read.
    *(
        (
            lambda way=way: influence(method=way, checkpoint="b.npz"),
            unread("checkpoint"),
        )
        for way in ("exhaustive", "incremental", "partial")
    ),
    *(
        (
            lambda beside=beside: bounds.bound_curve(
                SOFT, [3], bounds=beside, extend_to=10**6
            ),
            unread("extend_to"),
        )
        for beside in ((), ("certified",), ("estimate", "supremum"))
    ),
    *(
        (lambda name=name: jm.get_language(name, num_symbols=3), unread("num_symbols"))
        for name in ("parity", "dyck2", "ones", "anbn")
    ),
    (
        lambda: jm.make_weighting("softmax", tie_resolution=0.5),
        unread("tie_resolution"),
    ),
    (lambda: small_model(tie_resolution=0.5), unread("tie_resolution")),
]


@pytest.mark.parametrize(("call", "complaint"), BAD)
def test_what_has_a_range_or_no_effect_is_checked_before_work(call, complaint):
    with refused(complaint):
        call()


def test_a_resolution_is_of_models_with_hard_layers_alone():
    two = {"num_layers": 2, "weighting": ["softmax", "average_hard"]}
    mixed = small_model(**two, dtype="float64", tie_resolution=0.5)
    assert vars(mixed.layers[1].attention.weighting)["tie_resolution"] == 0.5
    soft = jm.with_weighting(mixed, "softmax")
    assert jm.apply(soft, TOKENS).shape == (LENGTH, 4)

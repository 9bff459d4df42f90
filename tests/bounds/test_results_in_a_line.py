"""Every result prints as a line or a few, whatever the length of the input."""

import dataclasses
import functools

import jax
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence.targets.logit_difference import LogitDifference
from bounds.restriction import check_certificate
from jax_models.arguments import BriefRepr
from jax_models.training import TrainingRun
from tests.architecture import small_model

LENGTH, MOST = 48, 1000  # tokens; characters
SHAPE = {"num_layers": 1, "num_heads": 2, "d_model": 8, "d_ff": 8, "dtype": "float64"}
SOFT = jm.random_transformer(jax.random.key(0), **SHAPE, vocab_size=2)
HARD = jm.with_weighting(SOFT, "leftmost_hard")
READER = small_model(**SHAPE, vocab_size=3, mask="future", num_classes=3)
TOKENS = np.arange(LENGTH) % 2
SOURCE = jm.get_source("parity", 0.1)
NUMBERS = np.zeros(LENGTH)


@functools.cache
def simulated():
    return bounds.simulate(HARD, 4, sweep=True)


RESULTS = {
    "influence": lambda: bounds.compute_influence(SOFT, TOKENS),
    "scan": lambda: bounds.scan(SOFT, TOKENS, rows="all"),
    "certificate": lambda: bounds.certify_influence(SOFT, TOKENS),
    "supremum": lambda: bounds.supremum(SOFT, 4),
    "closed forms": lambda: bounds.closed_form_bounds(SOFT, LENGTH),
    "constants": lambda: bounds.read_constants(SOFT, LENGTH),
    "Lipschitz": lambda: bounds.estimate_lipschitz(SOFT, 4, restarts=0),
    "curve": lambda: bounds.bound_curve(SOFT, [3, 4]),
    "sensitivity": lambda: bounds.average_sensitivity(
        READER, 3, target=LogitDifference(1, 0)
    ),
    "entropy": lambda: bounds.measure_entropy(READER, SOURCE, 4),
    "restriction": lambda: bounds.find_restriction(HARD, LENGTH),
    "counterexample": lambda: bounds.find_counterexample(HARD, LENGTH, "parity"),
    "verification": lambda: check_certificate(
        HARD, bounds.find_restriction(HARD, 8).certificate
    ),
    "simulation": lambda: simulated(),
    "measure": lambda: simulated().measured,
    "layer": lambda: simulated().measured.layers[0],
    "head": lambda: simulated().measured.heads[0],
    "simulations": lambda: bounds.simulation_curve(HARD, [3, 4]),
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
    every = {
        name
        for name in bounds.__all__
        if dataclasses.is_dataclass(one := getattr(bounds, name))
        and isinstance(one, type)
    }
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

"""Targets by name, and targets of others: arrays among their fields, no value."""

import dataclasses
import itertools
import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

import bounds
import jax_models as jm
from benchmarks import reference
from bounds.influence import (
    TARGETS,
    LogProbability,
    LogProbabilitySum,
    SharedBase,
    Target,
    TargetFunction,
)
from bounds.influence.answer import answer
from bounds.influence.build import build_request
from bounds.influence.choice import choose_method
from bounds.influence.methods import exhaustive
from bounds.influence.propagation import change_block
from bounds.influence.targets.table import parse_target
from jax_models.constructions import build_preset
from jax_models.model.pytree import pytree
from tests.bounds.influence.expect import encloses, meet, refused
from tests.bounds.influence.many_digits import every_pass, exact_influences
from tests.bounds.influence.models import TOKENS, build

PAGE = Path(__file__).resolve().parents[4] / "docs" / "targets.md"
INPUT = TOKENS[:6]
MODEL = build({"num_layers": 2, "position": None}, seed=1)


@pytree
class Probe(Target):
    reads = "activation"
    direction: Array

    def change(self, base, change):
        del base
        return (change * self.direction).sum(axis=-1, keepdims=True)

    def value(self, base):
        return self.change(base, base)


@pytree
class Squares(Target):
    """The squared distance of two activations along a direction: of no single one."""

    reads = "activation"
    direction: Array

    def change(self, base, change):
        del base
        return ((change * self.direction).sum(axis=-1, keepdims=True)) ** 2


DIRECTIONS = np.random.default_rng(0).normal(size=(2, MODEL.width))


METHODS = ("exhaustive", "incremental", "partial", "lumped")


@pytest.fixture(scope="module")
def along():
    rows = every_pass(reference.forward, MODEL, INPUT)
    watched = lambda x: x[-1] @ DIRECTIONS[0]
    return exact_influences(
        rows, lambda *ends: abs(watched(ends[1]) - watched(ends[0]))
    )


@pytest.mark.parametrize(
    ("method", "power"), [*((x, 2) for x in METHODS), *((x, 1) for x in METHODS[:2])]
)
def test_a_target_of_anyone_is_what_its_rule_says(method, power, along):
    target = {1: Probe, 2: Squares}[power](jnp.asarray(DIRECTIONS[0]))
    exact = along.copy()
    exact[-1] = np.nan  # the query's own row is not asked for
    found = bounds.compute_influence(MODEL, INPUT, method=method, target=target)
    assert found.exact
    assert encloses(found, exact**power)


@pytest.mark.parametrize(
    ("method", "program"),
    [
        ("exhaustive", exhaustive._rerun),  # pyright: ignore[reportPrivateUsage]
        ("incremental", change_block.change_block),
    ],
)
def test_another_direction_compiles_nothing_and_shares_a_base_pass(method, program):
    held, counts, found = SharedBase(), [], []
    for direction in DIRECTIONS:
        target = Probe(jnp.asarray(direction))
        request = build_request(MODEL, INPUT, target=target, shared=held)
        found += [answer(request, choose_method(method, request))]
        counts += [program._cache_size()]
    assert counts[0] == counts[1]
    assert abs(found[0].max - found[1].max) > 1e-3


def test_every_target_has_a_row_of_the_page():
    rows = re.findall(r"(?m)^\| `([^`=]+)` \|", PAGE.read_text())
    forms = [f"{x.name}{x.form.split(' ')[0]}" for x in TARGETS.values()]
    assert sorted(rows) == sorted(forms)


def test_names_and_labels_differ():
    for one, other in itertools.combinations(TARGETS.values(), 2):
        assert one.name != other.name
        assert one.label != other.label


FOUR = np.array([0, 1, 1, 0])
FIRST, LAST = 0, len(FOUR) - 1


@pytest.fixture(scope="module")
def model():
    case = {"num_layers": 1, "vocab_size": 2, "num_classes": 2}
    return dataclasses.replace(build(case), head_row="first")


def of_input(function, name="query", many=False):
    return lambda model, row, target: function(
        model, FOUR, target=target, **{name: [row] if many else row}
    )


def of_length(function, **options):
    return lambda model, row, target: function(
        model, len(FOUR), query=row, target=target, **options
    )


influence = of_input(bounds.compute_influence)


@pytest.mark.parametrize(
    "name", ["kl", "jensen_shannon", "log_probabilities", "loss:0"]
)
def test_the_probability_of_a_lone_logit_is_not_watched(name):
    target = parse_target(name, int)
    with refused("has one logit, whose probability is always 1"):
        bounds.compute_influence(build_preset("first"), [2, 0, 1], target=target)


ENTRANCES = (
    *(influence, of_input(bounds.scan, "rows"), of_input(bounds.scan, "rows", True)),
    *(of_input(bounds.certify_influence), of_length(bounds.closed_form_bounds)),
    of_length(bounds.estimate_lipschitz, restarts=0),
    of_length(bounds.supremum),
)


@pytest.mark.parametrize("ask", ENTRANCES)
def test_logits_are_watched_at_the_heads_row_alone(ask, model):
    ask(model, FIRST, "logits")
    ask(model, LAST, "activation")
    said = rf"row {LAST} is watched, and .* of the first row alone; watch row"
    with refused(said):
        ask(model, LAST, "logits")


@pytest.mark.parametrize("ask", [*ENTRANCES[:2], *ENTRANCES[3:]])
def test_the_heads_row_is_watched_by_default(ask, model):
    for target in ("logits", "activation"):
        default, asked = ask(model, None, target), ask(model, FIRST, target)
        assert repr(default) == repr(asked)


@pytest.mark.parametrize(
    "target",
    [
        LogProbability(1),
        LogProbabilitySum((0, 1), (FIRST, LAST)),
        TargetFunction(lambda logits: logits),
    ],
    ids=["a logit's", "of rows of its own", "a function"],
)
def test_other_targets_of_the_head_are_too(target, model):
    with refused("row alone"):
        influence(model, LAST, target)


def test_a_model_without_a_head_has_no_row_of_it(model):
    with refused(r"head_row = .* has no head"):
        jm.apply(dataclasses.replace(model, readout=None), FOUR)


def test_it_is_kept_in_a_file_of_version_2(model, tmp_path):
    jm.save(model, tmp_path / "model.safetensors")
    assert b"attention-bounds/2" in (tmp_path / "model.safetensors").read_bytes()
    assert jm.load(tmp_path / "model.safetensors").head_row == model.head_row
    with refused(r"head_row = 'middle'; expected one of"):
        jm.apply(dataclasses.replace(model, head_row="middle"), FOUR)


# One's own function.


def watch(target, model):
    return bounds.compute_influence(model, INPUT, target=target)


def test_ones_own_function_has_radii_of_moved_weights_or_what_is_stated():
    model = build({"head": "masked_lm"})
    named = watch("log_probabilities", model)
    plain = lambda logits: np.asarray(jax.nn.log_softmax(logits))
    for apply in (plain, jax.jit(jax.nn.log_softmax)):
        moved, stated = (
            watch(TargetFunction(apply, radius=radius), model)
            for radius in (None, 1e-13)
        )
        for found in (moved, stated):
            assert found.exact
            assert found.method == "exhaustive"
            assert meet(found, named)
        assert (moved.rounding, stated.rounding) == ("all", "stated")


def test_symbols_that_the_model_does_not_replace_stay():
    model = dataclasses.replace(build({}), substitutable=(0, 1))
    found = watch(TargetFunction(jax.jit(lambda logits: logits)), model)
    assert np.isnan(found.upper[:, 2]).all()

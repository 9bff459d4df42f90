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
from jax_models.model.pytree import pytree
from tests.bounds.influence.expect import encloses, meet, refused
from tests.bounds.influence.many_digits import every_pass, exact_influences
from tests.bounds.influence.models import TOKENS, build

PAGE = Path(__file__).resolve().parents[4] / "docs" / "targets.md"
INPUT = TOKENS[:6]
MODEL = build({"num_layers": 2, "position": None}, seed=1)


@pytree
class Squares(Target):
    """The squared distance of two activations along a direction: of no single one."""

    reads = "activation"
    direction: Array
    power = 2

    def change(self, base, change):
        del base
        along = (change * self.direction).sum(axis=-1, keepdims=True)
        return along**self.power


@pytree
class Probe(Squares):
    power = 1

    def value(self, base):
        return self.change(base, base)


DIRECTIONS = np.random.default_rng(0).normal(size=(2, MODEL.width))
METHODS = ("exhaustive", "incremental", "partial", "lumped")


@pytest.fixture(scope="module")
def along():
    rows = every_pass(reference.forward, MODEL, INPUT)
    along = lambda before, after: abs((after[-1] - before[-1]) @ DIRECTIONS[0])
    exact = exact_influences(rows, along)
    exact[-1] = np.nan  # the query's own row is not asked for
    return exact


@pytest.mark.parametrize(
    ("method", "kind"),
    [*((x, Squares) for x in METHODS), *((x, Probe) for x in METHODS[:2])],
)
def test_a_target_of_anyone_is_what_its_rule_says(method, kind, along):
    target = kind(jnp.asarray(DIRECTIONS[0]))
    found = bounds.compute_influence(MODEL, INPUT, method=method, target=target)
    assert found.exact
    assert encloses(found, along**kind.power)


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


def test_other_targets_of_the_head_are_too(model):
    function = TargetFunction(lambda logits: logits)
    rows = LogProbabilitySum((0, 1), (FIRST, LAST))
    for target in (LogProbability(1), rows, function):
        with refused("row alone"):
            influence(model, LAST, target)


def test_only_a_head_has_a_row_and_it_is_a_word(model):
    with refused(r"head_row = .* has no head"):
        jm.apply(dataclasses.replace(model, readout=None), FOUR)
    with refused(r"head_row = 'middle'; expected one of"):
        jm.apply(dataclasses.replace(model, head_row="middle"), FOUR)


def watch(target, model):
    return bounds.compute_influence(model, INPUT, target=target)


def test_ones_own_function_has_radii_of_moved_weights_or_what_is_stated():
    model = build({"head": "masked_lm"})
    named = watch("log_probabilities", model)
    plain = lambda logits: np.asarray(jax.nn.log_softmax(logits))
    for apply in (plain, jax.jit(jax.nn.log_softmax)):
        for radius, rounding in ((None, "all"), (1e-13, "stated")):
            found = watch(TargetFunction(apply, radius=radius), model)
            assert found.exact
            assert (found.method, found.rounding) == ("exhaustive", rounding)
            assert meet(found, named)


def test_symbols_that_the_model_does_not_replace_stay():
    model = dataclasses.replace(build({}), substitutable=(0, 1))
    found = watch(TargetFunction(jax.jit(lambda logits: logits)), model)
    assert np.isnan(found.upper[:, 2]).all()

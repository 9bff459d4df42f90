"""Plans share what they can; schedules obey them in as few layers as there can be."""

import itertools

import numpy as np
import pytest

from jax_models.model.position import PowerTerm
from jax_models.programs.circuit import (
    coordinates_of,
    coordinates_read,
    coordinates_written,
)
from jax_models.programs.logic import parse_formula
from jax_models.programs.logic.applications import all_of
from jax_models.programs.logic.modes import get_mode
from jax_models.programs.logic.syntax import And, Not, Or, Symbol
from jax_models.programs.logic.translate import MAX_CONJUNCTS, plan_formula
from tests.jax_models.programs.logic.compiled import (
    disagreements,
    expressible,
)

AB = ("a", "b")
U_POWERS = ((0, 1), (1, 0), (1, 1), (2, 1))
CUBE = (1, 2, 3)


def plan_of(text, mode="T"):
    return plan_formula(parse_formula(text), AB, get_mode(mode))


def test_a_shared_part_is_planned_once():
    both = plan_of("#<[(Q_a S P Q_b) or odd] >= 0 and ((Q_a S P Q_b) or odd)")
    scores = [(head.mask, head.query, head.key, head.value) for head in both.heads]
    # Two for P, one for S, and one for whether there is any to count.
    assert sum(head.purpose == "selected" for head in both.heads) == 4
    reads = [neuron.read for neuron in both.neurons]
    assert len(set(scores)) == len(scores)
    assert len(set(reads)) == len(reads)


def test_what_the_symbol_decides_is_embedded():
    for text in ("Q_a", "not (Q_a and not Q_b) or F", "Q_a -> Q_b"):
        plan = plan_of(text)
        assert (plan.heads, plan.neurons) == ([], [])
        assert len(plan.layers) == 1  # a transformer has a layer


def test_nothing_recurses_over_a_formula():
    formula = Symbol("a")
    for _ in range(3000):
        formula = Or(Not(formula), Symbol("b"))
    plan = plan_formula(formula, AB, get_mode("T"))
    assert plan.truth[formula] == plan.output


def test_a_long_conjunction_reads_few_at_once():
    count = 3 * MAX_CONJUNCTS
    chain = parse_formula("odd")
    for k in range(count):
        chain = And(parse_formula(f"mod({k + 2},1)"), chain)
    plan = plan_formula(chain, AB, get_mode("T"))
    widest = max(len(coordinates_of(neuron.read)) for neuron in plan.neurons)
    assert widest == MAX_CONJUNCTS
    assert len(plan.layers) < 8
    rng = np.random.default_rng(0)
    assert disagreements([chain], "T", (1, 3), rng, count=1) == (0, 0.0)


def fewest_layers(plan, most):
    """The least number of layers, by trying every sequence of masks; None beyond most."""
    ends = {c: set() for c in range(len(plan.coordinates))}
    steps = [*plan.heads, *plan.neurons]
    for at, step in enumerate(steps):
        for coordinate in coordinates_written(step):
            ends[coordinate].add(at)
    needs = [set().union(*(ends[c] for c in coordinates_read(step))) for step in steps]
    for count in range(1, most + 1):
        for masks in itertools.product(("none", "future", "past"), repeat=count):
            done = set()
            for mask in masks:
                for kind in (plan.heads, plan.neurons):
                    done |= {
                        at
                        for at, step in enumerate(steps)
                        if any(step is one for one in kind)
                        and getattr(step, "mask", mask) == mask
                        and needs[at] <= done
                    }
            if len(done) == len(steps):
                return count
    return None


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("#<[Q_a] > #>[Q_b]", "U"),
        ("N (Q_a S N Q_b)", "T"),
        ("P Q_a and N Q_b", "TB"),
        ("odd(#>[Q_a]) or P Q_b", "U"),
        ("Q_a U P Q_b", "T"),
        ("even(#<[Q_a])", "FU"),
    ],
)
def test_the_schedule_is_as_short_as_any(text, mode):
    plan = plan_of(text, mode)
    assert fewest_layers(plan, len(plan.layers)) == len(plan.layers)


SIGN, SHARE = (0, 0, True), (1, -1, False)
ALL = {"none", "future", "past"}


@pytest.mark.parametrize(
    ("mode", "masks", "exponents", "powers"),
    [
        ("T", ALL, {0, 1}, {SIGN, SHARE, (1, 0, False), (2, 0, False)}),
        ("TB", ALL, {0, 1, 3}, {SIGN, SHARE, (1, -2, False), (2, -2, False)}),
        ("U", ALL, {0}, {SIGN, SHARE, *((p, q, False) for p, q in U_POWERS)}),
        ("FT", {"future"}, {0, 1, 2}, {SIGN, (1, 0, False), (2, 0, False)}),
        ("FU", {"future"}, {0}, {SIGN, (1, 0, True), *((p, 0, False) for p in CUBE)}),
    ],
)
def test_modes_use_what_they_say(mode, masks, exponents, powers):
    plan = plan_formula(all_of(expressible(mode)), AB, get_mode(mode))
    terms = [term for c in plan.coordinates for term in c.terms]
    found = {
        (t.position_power, t.length_power, t.alternating)
        for t in terms
        if isinstance(t, PowerTerm)
    }
    assert found == powers
    assert {head.mask for head in plan.heads} == masks
    assert {head.exponent for head in plan.heads} == exponents
    assert {layer.mask for layer in plan.layers} == masks

"""Compiled formulas: plans, agreement with the evaluator, lengths, planted errors."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.position import PowerTerm
from jax_models.model.temperature import ConstantTemperature
from jax_models.programs import circuit
from jax_models.programs.circuit import (
    coordinates_of,
    coordinates_read,
    coordinates_written,
)
from jax_models.programs.logic import (
    compile,
    evaluate_formula,
    parse_formula,
    translate,
)
from jax_models.programs.logic.applications import all_of
from jax_models.programs.logic.compile import (
    compile_formula,
    exact_length,
    truth_values,
)
from jax_models.programs.logic.modes import MODES, get_mode
from jax_models.programs.logic.self_test import apply_eagerly
from jax_models.programs.logic.syntax import And, Not, Or, Symbol
from jax_models.programs.logic.translate import MAX_CONJUNCTS, plan_formula
from tests.bounds.influence.expect import refused
from tests.formulas import random_formula

LENGTHS = (1, 2, 3, 4, 5, 7, 16, 33, 100)
AHEAD = ("next", "until", "suffix")

# Every operator alone and at its boundaries, on the prefix and on the suffix side.
BACKWARD = [
    "not F",
    "Q_a and not Q_b and T",
    "Q_a or P Q_a or F",
    "P Q_a",
    "P P not Q_a",
    "first",
    "Q_a S Q_b",
    "F S Q_a",
    "T S Q_b",
    "historically Q_a",
    "(not P Q_a) S (P Q_a and Q_b)",
    "odd",
    "not mod(3,1)",
    "not mod(1,0)",
    "not mod(70,7) and not mod(1180591620717411303424,5)",
    "#<[Q_a] >= 1",
    "#<[Q_a] = 0",
    "#<[Q_a] - #<[not Q_a] >= 1",
    "2 * #<[Q_a] = 3 * #<[Q_b] + 1",
    "#<[Q_a] >= 40 - 3",
    "#<[T] > 7",
    "odd(#<[Q_a])",
    "mod(3,0)(#<[P Q_a])",
    "not mod(5,4)(#<[not Q_a])",
]
FORWARD = [
    "N Q_a",
    "N N not Q_a",
    "last",
    "Q_a U Q_b",
    "#>[Q_a] >= 1",
    "#>[Q_a] = #<[Q_a]",
    "not (#<[#<[P Q_a] = #>[Q_a]] >= 1)",
    "odd(#>[Q_a])",
    "mod(3,2)(#>[not Q_a])",
]


def expressible(mode):
    """The formulas of the lists that a mode can express."""
    texts = BACKWARD if get_mode(mode).future_only else BACKWARD + FORWARD
    return [parse_formula(text) for text in texts]


def random_formulas(mode, count, seed):
    """Draw formulas that a mode can express."""
    rng = np.random.default_rng([seed, list(MODES).index(mode)])
    without = AHEAD if get_mode(mode).future_only else ()
    return [random_formula(rng, 4, without=without) for _ in range(count)]


def strings_of(length, count, rng):
    """Random strings, the first two of one symbol and sparse in the other."""
    strings = rng.integers(0, 2, (count, length))
    strings[0] = rng.integers(2)
    if count > 1:
        strings[1] = rng.random(length) < 1.5 / length
    return strings


def coordinates_of_parts(formula, mode):
    """The coordinate of every sub-formula of a formula over ab."""
    plan = plan_formula(formula, ("a", "b"), get_mode(mode))
    return {part: at for part, (at,) in plan.truth.items()}


def disagreements(formulas, mode, lengths, rng, *, count=4):
    """How often one compiled model errs about some formulas, run eagerly.

    They are compiled together, as a conjunction, so that they share what they can. How
    many truth values of the formulas are wrong, and the largest distance of the
    coordinate of any sub-formula from 0 and 1.
    """
    whole = all_of(formulas)
    model = compile_formula(whole, "ab", mode, dtype="float64")
    truth = coordinates_of_parts(whole, mode)
    wrong, deviation = 0, 0.0
    for length in lengths:
        strings = strings_of(length, count, rng)
        y = apply_eagerly(model, strings)
        for formula in (whole, *formulas):
            held = y[..., truth[formula]] >= 0.5
            wrong += np.sum(held != evaluate_formula(formula, strings, "ab"))
        booleans = y[..., list(truth.values())]
        deviation = max(deviation, np.abs(booleans - (booleans >= 0.5)).max())
    return int(wrong), float(deviation)


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


@pytest.mark.parametrize("mode", MODES)
def test_every_operator_agrees_with_the_evaluator(mode):
    rng = np.random.default_rng(1)
    found = disagreements(expressible(mode), mode, LENGTHS, rng, count=2)
    assert found == (0, 0.0)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(k, marks=SLOW) for k in range(1, 5))]
)
@pytest.mark.parametrize("mode", MODES)
def test_random_formulas_agree_with_the_evaluator(mode, seed):
    """Sixty of a mode, of those that are slow two thousand at many lengths."""
    rng, few = np.random.default_rng(2), seed == 0
    formulas = random_formulas(mode, 60 if few else 500, seed)
    lengths, count, together = ((1, 2, 3, 16), 3, 15) if few else (LENGTHS, 2, 5)
    for start in range(0, len(formulas), together):
        some = formulas[start : start + together]
        assert disagreements(some, mode, lengths, rng, count=count) == (0, 0.0), some


def check_compiled_pass(formulas, mode, length):
    """The engine's value of each formula, compiled together, is exactly its truth."""
    whole = all_of(formulas)
    model = compile_formula(whole, "ab", mode, dtype="float64")
    truth = coordinates_of_parts(whole, mode)
    tokens = strings_of(length, 3, np.random.default_rng(length))[-1]
    y = np.asarray(jm.apply(model, tokens))
    for formula in (whole, *formulas):
        expected = evaluate_formula(formula, tokens, "ab").astype(float)
        np.testing.assert_array_equal(y[:, truth[formula]], expected)


@pytest.mark.parametrize("mode", [pytest.param("TB", marks=pytest.mark.slow), "FT"])
def test_the_compiled_pass_agrees_with_the_evaluator(mode):
    text = "P (Q_a S Q_b) or even(#<[Q_a]) and #<[Q_a] > #<[Q_b] + 1"
    check_compiled_pass([parse_formula(text)], mode, 12)


@pytest.mark.slow
@pytest.mark.parametrize("length", [5, 33])
@pytest.mark.parametrize("mode", MODES)
def test_fifty_random_formulas_agree_in_the_compiled_pass(mode, length):
    check_compiled_pass(random_formulas(mode, 25, seed=length), mode, length)


def test_saves_and_loads(tmp_path):
    formula = parse_formula("Q_x S Q_y and not mod(3,1)")
    model = compile_formula(formula, ("x", "y", "z"), "FT", dtype="float64")
    jm.save(model, tmp_path / "model.safetensors")
    loaded = jm.load(tmp_path / "model.safetensors")
    assert jm.model_bytes(loaded) == jm.model_bytes(model)
    assert exact_length(loaded) == exact_length(model)
    assert loaded.vocabulary == ("x", "y", "z")
    assert loaded.substitutable == (0, 1, 2)
    tokens = [2, 1, 0, 0, 2, 1]
    expected = evaluate_formula(formula, tokens, "xyz")
    np.testing.assert_array_equal(truth_values(loaded, tokens), expected)
    assert jm.accepts(loaded, tokens) == expected[-1]


@pytest.mark.parametrize(
    ("text", "mode", "reasons"),
    [
        (
            "N Q_c or Q_a U (#>[Q_d] >= 1)",
            "FU",
            [
                "'c' is not in the alphabet a b",
                "N (next)",
                "U (until)",
                "'d' is not in",
                "#> counts later positions",
                "use T, TB or U",
            ],
        ),
        ("Q_c", "T", ["mode T cannot express the formula: the symbol 'c'"]),
        ("#<[T] >= " + "9" * 400, "TB", ["an integer beyond 2^53"]),
        (f"{2**53 + 1} * #<[T] >= 1", "U", ["an integer beyond 2^53"]),
        ("Q_a", "V", ["mode = 'V'; expected one of T, TB, U, FT, FU"]),
    ],
)
def test_a_mode_refuses_with_all_reasons(text, mode, reasons):
    with pytest.raises(jm.InputError) as raised:
        compile_formula(parse_formula(text), "ab", mode)
    for reason in reasons:
        assert reason in str(raised.value)


PREFIX = ["P (Q_a S Q_b)", "odd(#<[Q_a])", "2 * #<[Q_a] >= 3 * #<[Q_b] + 5"]
SUFFIX = ["N (Q_a U Q_b)", "odd(#>[Q_a])", "#>[Q_a] >= #<[Q_b] + 1"]
REST = ("TB", "U", "FT")


def texts(mode):
    return PREFIX if get_mode(mode).future_only else PREFIX + SUFFIX


def hard_strings(length, rng):
    """Strings with few, about half and all of them the symbol b."""
    return (rng.random((3, length)) < [[0.02], [0.5], [1.0]]) * 1


def errors(model, formula, length):
    strings = hard_strings(length, np.random.default_rng(length))
    logits = apply_eagerly(model, strings) @ np.asarray(model.readout.weight)[0]
    return int(np.sum((logits >= 0.5) != evaluate_formula(formula, strings, "ab")))


@pytest.mark.parametrize(
    "mode", ["T", "FU", *(pytest.param(m, marks=SLOW) for m in REST)]
)
def test_no_value_is_wrong_up_to_the_length(mode):
    for text in texts(mode):
        formula = parse_formula(text)
        model = compile_formula(formula, "ab", mode)
        assert exact_length(model) > 250
        assert not errors(model, formula, min(exact_length(model), 450)), text


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_values_are_wrong_some_way_beyond_the_length(mode):
    formula = parse_formula("odd(#<[Q_a])")
    model = compile_formula(formula, "ab", mode)
    most = exact_length(model)
    assert not errors(model, formula, most)
    assert any(errors(model, formula, factor * most) for factor in (2, 4, 8, 16))


def longest(text, mode, dtype="float32"):
    return exact_length(compile_formula(parse_formula(text), "ab", mode, dtype=dtype))


@pytest.mark.parametrize("mode", MODES)
def test_float64_reaches_a_million(mode):
    for text in texts(mode):
        assert longest(text, mode, "float64") > 10**6, text


# As docs/logic.md has them: every bound that decides one of them is held to its constants.
DOCUMENTED = [
    ("Q_a S Q_b", "T", 167_773),
    ("Q_a S Q_b", "FT", 1015),
    ("#<[Q_a] > #<[Q_b]", "T", 446),
    ("#<[Q_a] > #<[Q_b]", "FU", 27_189),
    ("odd(#<[Q_a])", "T", 442),
    ("odd(#<[Q_a])", "FU", 308),
]


@pytest.mark.parametrize(("text", "mode", "length"), DOCUMENTED)
def test_lengths_are_those_of_the_documentation(text, mode, length):
    assert longest(text, mode) == length


@pytest.mark.parametrize("mode", ["T", "TB", "FU"])
def test_larger_integers_leave_shorter_strings(mode):
    one, ten, hundred = (
        longest(f"{k} * #<[Q_a] > #<[Q_b]", mode) for k in (1, 10, 100)
    )
    assert one > ten > hundred


@pytest.mark.parametrize("mode", MODES)
def test_a_head_that_looks_up_a_number_and_a_predicate_answers_for_both(mode):
    number, predicate = "#<[Q_a] >= 2", "odd(#<[Q_a])"
    both = longest(f"{number} and {predicate}", mode)
    assert both == longest(predicate, mode) < longest(number, mode)


def test_a_float32_model_says_so_beyond_its_length():
    model = compile_formula(parse_formula("#<[Q_a] >= #<[Q_b]"), "ab", "T")
    most = exact_length(model)
    with refused(rf"n = 4096 rounding could flip .* up to n = {most}; .* float64"):
        truth_values(model, jnp.zeros(4096, jnp.int32))


@pytest.mark.parametrize("mode", MODES)
def test_integers_beyond_the_float_type_are_refused(mode):
    text = "#<[Q_a] >= 100000000"
    with refused(r"too large for float32.* or dtype float64"):
        longest(text, mode)
    assert longest(text, mode, "float64") > 1000


@pytest.mark.parametrize("name", ["first", "parity"])
@pytest.mark.parametrize("ask", [exact_length, lambda x: truth_values(x, [0, 1])])
def test_another_model_is_no_compiled_formula(name, ask):
    with refused("not compiled from a formula"):
        ask(jm.build_preset(name))


SHORT = (1, 2, 3, 5, 16)


FORMS, ROUNDING = translate.FormulaCircuit, translate.rounding
CONJUNCTION, SINCE, SELECT = FORMS.conjunction, FORMS.since, FORMS.select
OTHER = {"prefix": "suffix", "suffix": "prefix"}

without_gates = lambda number, *gates: ROUNDING(number)
without_the_last_gate = lambda number, *gates: ROUNDING(number, *gates[:-1])
leftmost = lambda circuit, side, *rest: SELECT(circuit, OTHER[side], *rest)
rightmost_of_all = lambda circuit, side, left, right: SINCE(circuit, side, None, right)
first_conjunct = lambda circuit, conjuncts: CONJUNCTION(circuit, list(conjuncts)[:1])
constant_true = lambda circuit, side, truth: circuit.coordinate([1, 1])
# Misses the lone position, where the number itself is read.
never = lambda circuit: circuit.coordinate([0, 0])
constant = lambda scale, exponent, of: ConstantTemperature(scale)

PLANTED = {
    "open gates of P": ("T", "P Q_a", translate, "rounding", without_gates),
    "P open at 1": ("FU", "P Q_a", translate, "rounding", without_the_last_gate),
    "a blunt selection": ("T", "Q_a S Q_b", translate, "SHARPNESS", 0.3),
    "the other side": ("T", "Q_a S P Q_b", FORMS, "select", leftmost),
    "any since": ("TB", "odd S Q_b", FORMS, "since", rightmost_of_all),
    "one conjunct": ("T", "odd and Q_a", FORMS, "conjunction", first_conjunct),
    "no mark of the end": ("FT", "P Q_a", translate, "mask_of", lambda side: "none"),
    "0 is 1": ("T", "#<[Q_a] >= 1", FORMS, "has_any", constant_true),
    "a blunt lookup": (
        "FT",
        "#<[T] >= 3",
        translate,
        "lookup_sharpness",
        lambda _: 0.2,
    ),
    "a vote of odd": ("TB", "#<[Q_a] >= 1", FORMS, "_only", never),
    "a blunt vote": ("TB", "#<[Q_a] > #<[Q_b]", translate, "SHARPNESS", 0.1),
    "a constant temperature": ("T", "Q_a S Q_b", circuit, "PowerTemperature", constant),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_error_is_noticed(planted, monkeypatch):
    mode, text, where, name, replacement = PLANTED[planted]
    formulas = [parse_formula(text)]
    rng = np.random.default_rng(0)
    assert disagreements(formulas, mode, SHORT, rng) == (0, 0.0)
    # The compiler itself refuses some of them, for want of any length it could vouch for.
    monkeypatch.setattr(compile, "require_exact", lambda model, length: None)
    monkeypatch.setattr(where, name, replacement)
    assert disagreements(formulas, mode, SHORT, rng) != (0, 0.0)

"""Compiled programs: heads of gap 1, the evaluator's answers, proved lengths.

The oracle is an average-hard transformer, written once more from the text of the model
format, eagerly, over batches of strings [c, n], in two arithmetics: rational numbers, where
scores are equal or not, and float64 with score cells. It has only what compiled programs
have: dot products, no layer norm, ReLU.
"""

import dataclasses
import re
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from jax_models.model.transformer import encode_positions
from jax_models.programs.rasp import (
    PROGRAMS,
    CompiledProgram,
    build_model,
    check_program,
    compile_program,
    evaluate_program,
    longest_exact_length,
    lower,
    plan_program,
    read_result,
)
from tests.bounds.influence.expect import refused
from tests.jax_models.programs.definitions import all_strings
from tests.jax_models.programs.rasp.test_evaluate import (
    ALPHABET,
    SEES,
    random_program,
)


@dataclasses.dataclass
class Run:
    """What a model said, and how its heads that are not uniform decided."""

    logits: np.ndarray  # [c, n, classes]
    least_gap: Fraction | float = np.inf  # best score less the next, over all rows
    most_tied: int = 0  # keys of the best score
    coordinates: np.ndarray = dataclasses.field(  # largest magnitude of each [d]
        default_factory=lambda: np.zeros(1)
    )


def rational(array) -> np.ndarray:
    """The numbers of an array, as rationals: integers where they are, for speed."""

    def convert(number):
        number = Fraction(number)
        return number.numerator if number.denominator == 1 else number

    return np.asarray(np.frompyfunc(convert, 1, 1)(np.asarray(array)), object)


def positions(model, length, exact):
    """The encoding [n, d]: in rationals 1/i is not rounded."""
    if not exact:
        return encode_positions(model, length)
    table = rational(np.zeros((length, model.width)))
    for term in model.position.terms if model.position else ():
        for j in range(length):
            p = Fraction(j + int(term.offset))
            value = p ** int(term.position_power) * length ** int(term.length_power)
            table[j, term.coordinate] += int(term.scale) * value
    return table


def run_hard(model, strings, *, exact=False, dtype=np.float64):
    """Logits of every string at every position, with the heads' gaps."""
    number = rational if exact else (lambda array: np.asarray(array, dtype))
    model = jax.tree.map(np.asarray, model)
    strings = np.atleast_2d(strings)
    y = number(model.embedding)[strings]
    y = y + number(positions(model, strings.shape[1], exact))
    found = Run(logits=np.zeros(0))
    for layer in model.layers:
        y = y + attend(layer.attention, y, number, exact, found)
        block = layer.feed_forward
        hidden = y @ number(block.w1).T + number(block.b1)
        hidden = np.where(hidden > 0, hidden, 0 * hidden)
        y = y + hidden @ number(block.w2).T + number(block.b2)
        size = np.abs(y).max(axis=(0, 1)).astype(np.float64)
        found.coordinates = np.maximum(found.coordinates, size)
    found.logits = y @ number(model.readout.weight).T + number(model.readout.bias)
    return found


def attend(attention, y, number, exact, found):
    """What the heads add to the rows [c, n, d]."""
    assert attention.score == "dot_product"
    steps, length = range(y.shape[1]), y.shape[1]

    def project(name):
        rows = np.einsum("hed,cnd->hcne", number(getattr(attention, name)), y)
        bias = getattr(attention, f"{name}_bias")
        return rows if bias is None else rows + number(bias)[:, None, None]

    queries, keys, values = project("query"), project("key"), project("value")
    seen = np.array([[SEES[attention.mask](i, j) for j in steps] for i in steps])
    scores = np.einsum("hcie,hcje->hcij", queries, keys)
    cells = scores if exact else np.round(scores / attention.weighting.tie_resolution)
    cells = np.where(seen, cells, -np.inf)
    members = seen & (cells == cells.max(axis=-1, keepdims=True))
    tied = members.sum(axis=-1)
    decides = attention.query.any(axis=(1, 2))  # the others are uniform
    if attention.query_bias is not None:
        decides = decides | attention.query_bias.any(axis=1)
    if decides.any():
        found.most_tied = max(found.most_tied, int(tied[decides].max()))
        top = np.where(seen, scores, -np.inf).max(axis=-1, keepdims=True)
        gaps = np.where(seen & ~members, top - scores, np.inf)[decides]
        found.least_gap = min(found.least_gap, gaps.min())
    total = np.einsum("hcij,hcjv->hciv", number(members), values)
    shares = [Fraction(1, max(int(one), 1)) for one in tied.ravel()]
    heads = total * number(np.reshape(shares, (*tied.shape, 1)))
    side_by_side = heads.transpose(1, 2, 0, 3).reshape(len(y), length, -1)
    return side_by_side @ number(attention.output).T


def some_strings(alphabet, length, most):
    """All strings of a length, or `most` random ones."""
    if len(alphabet) ** length <= most:
        return all_strings(len(alphabet), length)
    return np.random.default_rng(length).integers(0, len(alphabet), (most, length))


class Case:
    """A program in all its forms."""

    def __init__(self, text, alphabet):
        self.alphabet = alphabet
        self.program = check_program(text, alphabet)
        self.plan = plan_program(self.program)
        self.model = build_model(self.plan, jnp.float64)

    def flaws(self, strings, exact, plan=None):
        """What is wrong with the model on strings of one length; nothing at best."""
        model = self.model if plan is None else build_model(plan, jnp.float64)
        found = run_hard(model, strings, exact=exact)
        said = read_result(self.plan, found.logits.astype(np.float64))
        # Floats may miss a gap of 1, far less than they may at the longest length.
        needed = self.plan.gap - (0 if exact else 2**-20)
        flaws = []
        if not np.array_equal(said, evaluate_program(self.program, strings)):
            flaws.append("answers")
        if found.most_tied > 1:
            flaws.append("ties")
        if found.least_gap < needed:
            flaws.append("gap")
        return flaws


def library(name):
    return Case(*PROGRAMS[name])


LOOKUP = """
depth = psum[j<=i] ((in = 'a') - (in = 'b'))
x = {}_j[{}, depth(j) = depth(i)] pos(j) : (depth - 9)
return x
"""


MANY = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(1000, 1200)]


@pytest.mark.parametrize("seed", [16, 26, 42, 46, 62, 74, *MANY])
def test_random_programs_compute_what_they_mean_with_gap_one(seed):
    """In rational arithmetic, where gaps are exact, and in float64."""
    case = Case(random_program(seed, 3 + seed % 3), ALPHABET)
    for length in (1, 2, 3, 6):
        assert not case.flaws(all_strings(2, length), exact=False)
    assert not case.flaws(some_strings(ALPHABET, 4, 3), exact=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_library_compiles_to_what_it_means_with_gap_one(name):
    case = library(name)
    # All strings of a length at which there are some hundreds.
    for length in (1, {2: 6, 3: 4, 4: 4, 5: 4, 6: 3}[len(case.alphabet)]):
        strings = all_strings(len(case.alphabet), length)
        assert not case.flaws(strings, exact=False)
    assert not case.flaws(some_strings(case.alphabet, 5, 1), exact=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_library_is_right_on_longer_strings(name):
    case = library(name)
    for length in (7, 16, 33, 60, 100):
        assert not case.flaws(some_strings(case.alphabet, length, 20), exact=False)
    assert not case.flaws(some_strings(case.alphabet, 16, 1), exact=True)


def planted(plan, purpose, factor):
    """The plan with the last key of every head of a purpose multiplied."""

    def changed(head):
        if head.purpose != purpose:
            return head
        key = (*head.key[:-1], head.key[-1] * factor)
        return dataclasses.replace(head, key=key)

    layers = tuple(
        dataclasses.replace(layer, heads=tuple(map(changed, layer.heads)))
        for layer in plan.layers
    )
    assert layers != plan.layers
    return dataclasses.replace(plan, layers=layers)


@pytest.mark.parametrize(
    ("purpose", "factor", "flaw"),
    [
        ("rightmost position", 2, "answers"),  # a tie-break that overturns the score
        ("rightmost position", -1, "answers"),  # the other side
        ("rightmost position", 0, "ties"),
        ("square of an integer", 2, "answers"),  # attends to half of it
        ("count from a mean", 2, "answers"),
    ],
)
def test_the_oracle_catches_a_planted_score(purpose, factor, flaw):
    case = Case(LOOKUP.format("right", "j<i"), ALPHABET)
    strings = all_strings(2, 5)
    assert not case.flaws(strings, exact=False)
    wrong = planted(case.plan, purpose, factor)
    assert flaw in case.flaws(strings, exact=False, plan=wrong)


def test_the_oracle_catches_a_lost_neuron():
    """Without the neuron that takes off b/i, counts are too large by one."""
    case = library("majority")
    first = dataclasses.replace(case.plan.layers[0], neurons=())
    wrong = dataclasses.replace(case.plan, layers=(first, *case.plan.layers[1:]))
    strings = all_strings(len(case.alphabet), 3)
    assert "answers" in case.flaws(strings, exact=True, plan=wrong)


def test_the_oracle_catches_an_empty_row_that_matches_zero(monkeypatch):
    """Without the 1 that is fetched too, what an empty row brings back equals 0."""
    same_integer = lower._Lowering._same_integer

    def planted(*arguments):
        criterion = same_integer(*arguments)
        return dataclasses.replace(criterion, fails_on_zeros=True)

    monkeypatch.setattr(lower._Lowering, "_same_integer", planted)
    case = Case(LOOKUP.format("right", "j>i"), ALPHABET)
    strings = all_strings(2, 2)
    assert "answers" in case.flaws(strings, exact=False)
    monkeypatch.undo()
    assert not Case(LOOKUP.format("right", "j>i"), ALPHABET).flaws(strings, exact=True)


# Where n = 1, rows see nothing, nobody has a key, numbers are negative. A row that sees
# nothing brings back 0, and a depth of 0 must not match it.
LOOKUPS = [
    LOOKUP.format(side, mask)
    for side in ("right", "left")
    for mask in ("true", "j<=i", "j<i", "j>=i", "j>i")
]
SMALL = [
    "return in",
    "return pos",
    "x = true\nreturn x",
    "x = -7\nreturn x",
    "x = psum[j<=i] 1\nreturn x",
    "x = psum[j<=i] (3 * (in = 'a') - 2)\nreturn x",
    "y = (in = 'a') + 2 * (in = 'b') - 2\nz = if y = 0 then y else -1\n"
    "x = psum[j<=i] z\nreturn x",
    "x = if in = 'a' then 2 * pos else -pos\nreturn x",
    "x = right_j[true, false] pos(j) : pos\nreturn x",
    "x = right_j[j<i, true] true : false\nreturn x",
    "y = in = 'a'\nx = left_j[true, y(i) = y(j)] pos(j) : 0\nreturn x",
    "x = right_j[j<=i, 'a' = in(j) and 3 = pos(j)] 1 : 0\nreturn x",
    "y = right_j[j<i, true] in(j) : '#'\nz = right_j[true, false] y(j) : '%'\n"
    "x = right_j[true, z(i) = in(j)] pos(j) : 0\nreturn x",
    "x = right_j[true, 2 * pos(j) = pos(i)] in(j) : '#'\nreturn x",
    # Ends of ranges: a count of 0, a sum that is at least 1, a key of one value.
    "y = psum[j<=i] (in = 'a')\nx = y > 0\nreturn x",
    "y = psum[j<=i] (1 + (in = 'a'))\nx = y >= 2\nreturn x",
    "y = (in = 'a') - 1\nz = -1\nx = right_j[j<i, y(i) = z(j)] 5 : 7\nreturn x",
    # What an empty row brings back, 0, is far from all values and the default.
    "y = 100 + pos\nx = right_j[j<i, true] y(j) : 99\nreturn x",
    "y = (in = 'a') - 9\nx = left_j[j>i, true] y(j) : (-9)\nreturn x",
]


@pytest.mark.parametrize("text", SMALL + LOOKUPS)
def test_small_programs_and_lookups_at_every_short_length(text):
    case = Case(text, ALPHABET)
    for length in (1, 2, 5):
        assert not case.flaws(all_strings(2, length), exact=False)
    assert not case.flaws(all_strings(2, 2)[1:3], exact=True)


def test_what_is_said_twice_is_built_once():
    once = Case("x = psum[j<=i] (in = 'a')\nreturn x", ALPHABET)
    twice = Case(
        "x = psum[j<=i] (in = 'a')\ny = psum[j<=i] (in = 'a')\nz = x + y\nreturn z",
        ALPHABET,
    )
    assert twice.plan.layers == once.plan.layers


def test_the_engine_says_what_the_program_means(tmp_path):
    """Compiled by JAX, saved and loaded, read by accept rule and by logits."""
    case = library("majority")
    jm.save(case.model, tmp_path / "model.safetensors")
    model = jm.load(tmp_path / "model.safetensors")
    for tokens in ([1, 1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 1, 1, 1]):
        wanted = evaluate_program(case.program, tokens)
        said = CompiledProgram(case.plan, model).run(tokens)
        assert said.tolist() == wanted.tolist()
        assert jm.accepts(model, tokens) == wanted[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "length"), [("dyck2", 1024), ("induction_head", 300)])
def test_the_engine_says_what_the_program_means_at_length(name, length):
    case = library(name)
    compiled = CompiledProgram(case.plan, case.model)
    for n in (1, 2, length):
        tokens = np.random.default_rng(n).integers(0, len(case.alphabet), n)
        if name == "dyck2" and n % 2 == 0:
            word = jm.get_language("dyck2").sample(jax.random.key(1), n, 1)
            tokens = np.asarray(word)[0]
        wanted = evaluate_program(case.program, tokens)
        assert compiled.run(tokens).tolist() == wanted.tolist()


def test_every_activation_is_within_its_bound():
    for name in ("dyck2", "induction_head"):
        case = library(name)
        for length in (1, 2, 7):
            strings = some_strings(case.alphabet, length, 30)
            found = run_hard(case.model, strings)
            for size, one in zip(found.coordinates, case.plan.coordinates, strict=True):
                assert one.bound is not None
                assert size <= one.bound(length)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "y = 70 * (in = 'a')\nx = right_j[true, y(i) = y(j)] pos(j) : 0\nreturn x",
            "line 2, column 24: the integer at j is an integer from 0 to 70",
        ),
        (
            "y = 300 * (in = 'a')\nx = psum[j<=i] y\nreturn x",
            "line 2, column 16: psum counts one Boolean for each of 300 steps",
        ),
        (
            "x = right_j[true, pos(i) < pos(j)] pos(j) : 0\nreturn x",
            "line 1, column 26: a predicate compares",
        ),
        (
            "x = right_j[true, "
            + " or ".join(f"(pos(i) = {k} and pos(j) = 1)" for k in range(7))
            + "] pos(j) : 0\nreturn x",
            "the predicate mixes 7 conditions at i",
        ),
    ],
)
def test_what_has_no_heads_or_too_many_is_refused_with_its_place(text, says):
    with refused(re.escape(says)):
        compile_program(text, ALPHABET)


def test_beyond_what_is_proved_the_length_is_refused():
    text, alphabet = PROGRAMS["dyck2"]
    case = library("dyck2")
    longest = longest_exact_length(case.plan, jnp.float32)
    compile_program(text, alphabet, max_length=longest)
    with refused(f"exact in float32 up to n = {longest}"):
        compile_program(text, alphabet, max_length=longest + 1)
    with refused("max_length = 0; expected an integer"):
        compile_program(text, alphabet, max_length=0)
    with refused("up to n = 0"):
        compile_program("x = 123456789 + pos\nreturn x", "ab")
    with refused("3 classes"):
        read_result(case.plan, np.zeros((4, 3)))
    compiled = CompiledProgram(case.plan, build_model(case.plan, jnp.float32))
    with refused("use float64"):
        compiled.run(np.zeros(longest + 1, int))


@pytest.mark.parametrize("name", PROGRAMS)
def test_float64_is_proved_exact_to_ten_thousand_symbols(name):
    assert longest_exact_length(library(name).plan, jnp.float64) >= 10_000


@pytest.mark.parametrize("name", ["majority", "dyck2", "induction_head"])
def test_float32_is_exact_up_to_the_length_that_is_proved(name):
    case = library(name)
    longest = min(longest_exact_length(case.plan, jnp.float32), 64)
    strings = some_strings(case.alphabet, longest, 3)
    single = run_hard(case.model, strings, dtype=np.float32)
    said = read_result(case.plan, single.logits)
    assert np.array_equal(said, evaluate_program(case.program, strings))
    assert single.logits.dtype == np.float32
    assert single.least_gap > 1 / 2


def test_the_engine_reports_no_row_up_to_the_length_that_is_proved():
    """In float32, where all keys are n: the largest scores, and a gap of 1."""
    text = (
        "last = right_j[true, true] pos(j) : 0\n"
        "x = right_j[true, last(j) = last(i)] pos(j) : 0\nreturn x"
    )
    case = Case(text, ALPHABET)
    model = build_model(case.plan, jnp.float32)
    longest = longest_exact_length(case.plan, jnp.float32)
    said = CompiledProgram(case.plan, model).run(np.zeros(longest, int))
    assert said.tolist() == [longest] * longest

"""Every source has the laws of its grammar, draws from them, and has the levels of tables.

The grammars are exact: words grow symbol by symbol, in rational numbers.
"""

import itertools
import math
from fractions import Fraction

import jax
import mpmath
import numpy as np
import pytest

from jax_models.languages import (
    SOURCES,
    AutomatonSource,
    BoundedDyckSource,
    DyckSource,
    ParitySource,
    base,
    get_language,
    get_source,
)
from jax_models.languages import dyck_source as heights
from jax_models.languages.base import binary_entropy
from tests.jax_models.languages.test_languages import p_value
from tests.jax_models.programs.definitions import all_strings


def parity_follows(p):
    """Returns what follows a bit string: after an even count of ones it may end."""

    def follows(string):
        if sum(string) % 2:
            return (Fraction(1, 2), Fraction(1, 2), Fraction(0))
        return ((1 - p) / 2, (1 - p) / 2, p)

    return follows


def dyck_follows(p, k=2, depth=math.inf):
    """Returns what follows a bracket string, read with a stack."""

    def follows(string):
        stack = []
        for symbol in string:
            if symbol % 2 == 0:
                stack.append(symbol)
            else:
                assert stack.pop() == symbol - 1
        up = p if len(stack) < depth else Fraction(0)
        law = [up / k, Fraction(0)] * k + [Fraction(0)]
        law[stack[-1] + 1 if stack else -1] = 1 - up
        return tuple(law)

    return follows


def prefix_law(follows, length):
    """Returns every prefix of a length with its probability, not yet conditional."""
    law = {(): Fraction(1)}
    for _ in range(length):
        law = {
            (*string, symbol): weight * chance
            for string, weight in law.items()
            for symbol, chance in enumerate(follows(string)[:-1])
            if chance
        }
    return law


def cross_entropy(follows, length, predict):
    """Returns the expected loss of a prediction of what follows a prefix, in nats."""
    law = prefix_law(follows, length)
    total = sum(law.values())
    return sum(
        float(weight / total * chance) * -math.log(guess)
        for string, weight in law.items()
        for chance, guess in zip(follows(string), predict(string), strict=True)
        if chance
    )


def best_given(follows, length, seen):
    """Returns the least expected loss of predictions that see only `seen(prefix)`."""
    law, tables = prefix_law(follows, length), {}
    for string, weight in law.items():
        table = tables.setdefault(seen(string), itertools.repeat(Fraction(0)))
        tables[seen(string)] = [
            a + weight * b for a, b in zip(table, follows(string), strict=False)
        ]
    chances = {key: [float(x / sum(row)) for x in row] for key, row in tables.items()}
    return cross_entropy(follows, length, lambda string: chances[seen(string)])


# Dyadic probabilities, which floats hold exactly.
P, Q = Fraction(3, 8), Fraction(7, 8)
PARITY_AUTOMATON = AutomatonSource(
    ((0, 1), (1, 0)), ((5 / 16, 5 / 16), (0.5, 0.5)), (3 / 8, 0.0)
)
CASES = {
    "parity": (ParitySource(float(P)), parity_follows(P), 5),
    "parity, ends early": (ParitySource(float(Q)), parity_follows(Q), 4),
    "automaton": (PARITY_AUTOMATON, parity_follows(P), 5),
    "dyck1": (DyckSource(float(P), 1), dyck_follows(P, 1), 6),
    "dyck2": (DyckSource(float(P), 2), dyck_follows(P), 5),
    "dyck2, climbing": (DyckSource(float(Q), 2), dyck_follows(Q), 4),
    "depth 2": (BoundedDyckSource(float(P), 2, 2), dyck_follows(P, 2, 2), 5),
}
every_source = pytest.mark.parametrize(
    ("model", "follows", "n"), CASES.values(), ids=CASES
)


def evaluate(model, strings):
    """Returns ln P(prefix), what follows, and whether each string is a prefix, a word."""

    @jax.jit
    def compiled(tokens):
        after, logs = model.next_symbol(tokens), model.log_probability(tokens)
        prefix = logs > -math.inf
        return logs, after, prefix, prefix & (after[..., -1, -1] > 0)

    return [np.asarray(x) for x in compiled(np.asarray(strings, np.int32))]


@every_source
def test_probabilities_are_those_of_the_grammar(model, follows, n):
    law = prefix_law(follows, n)
    found = {tuple(row) for row in model.prefixes(n).tolist()}
    assert found == set(law)
    assert len(model.prefixes(n)) == len(law)
    assert math.exp(model.log_survival(n)) == pytest.approx(float(sum(law.values())))
    logs, following, prefixes, _ = evaluate(model, list(law))
    weights = [float(weight) for weight in law.values()]
    np.testing.assert_allclose(np.exp(logs), weights, rtol=1e-13)
    assert prefixes.all()
    for at in range(n):
        wanted = [[float(x) for x in follows(string[: at + 1])] for string in law]
        np.testing.assert_allclose(following[:, at], wanted, rtol=1e-14)


@every_source
@pytest.mark.parametrize("shorter", [0, 1, 3])
def test_levels_are_those_of_all_prefixes(model, follows, n, shorter):
    length = n - shorter
    levels = model.levels(length)
    close = {"rel": 1e-12}
    whole = best_given(follows, length, lambda string: string)
    assert levels.optimal == pytest.approx(whole, **close)
    last = best_given(follows, length, lambda string: string[-1])
    assert levels.last_symbol == pytest.approx(last, **close)
    constant = best_given(follows, length, lambda string: None)
    assert levels.unigram == pytest.approx(constant, **close)
    assert levels.optimal - 1e-12 <= levels.last_symbol <= levels.unigram + 1e-12


def law_of_prefixes(follows, n):
    """Probabilities of the prefixes of a length, given that a word is as long."""
    law = prefix_law(follows, n)
    return {string: weight / sum(law.values()) for string, weight in law.items()}


@every_source
def test_samples_are_distributed_as_prefixes(model, follows, n):
    drawn = model.sample(jax.random.key(0), n, 40000)
    assert p_value(drawn, law_of_prefixes(follows, n)) > 1e-3


class UniformWalks(DyckSource):
    """Planted: all walks alike, whatever p is."""

    def draw_steps(self, key, length, count):
        return DyckSource(0.5).draw_steps(key, length, count)


def test_the_chi_square_catches_a_wrong_sampler():
    _, follows, n = CASES["dyck2, climbing"]
    drawn = UniformWalks(float(Q)).sample(jax.random.key(0), n, 40000)
    assert p_value(drawn, law_of_prefixes(follows, n)) < 1e-30


def test_a_batch_in_chunks_is_distributed_alike(monkeypatch):
    monkeypatch.setattr(base, "CHUNK", 16384)
    model, follows, n = DyckSource(0.3125), dyck_follows(Fraction(5, 16)), 4
    drawn = np.asarray(model.sample(jax.random.key(3), n, 10001))
    assert drawn.shape == (10001, n)
    assert len(np.unique(drawn[:3334], axis=0)) == len(prefix_law(follows, n))
    assert not (drawn[:3334] == drawn[3334:6668]).all()
    assert p_value(drawn, law_of_prefixes(follows, n)) > 1e-3


LONG = [ParitySource(0.3), DyckSource(0.4), DyckSource(0.6)]


@pytest.mark.parametrize("model", LONG, ids=str)
def test_long_prefixes_are_prefixes(model):
    n = 1001
    drawn = np.asarray(model.sample(jax.random.key(1), n, 40))
    assert drawn.shape == (40, n)
    assert evaluate(model, drawn)[2].all()
    if isinstance(model, DyckSource):
        closes = (drawn[:, -1] % 2 == 1).mean()
        heights = (1 - 2 * (drawn % 2)).sum(axis=1)
        law = model.step_law(n)
        # 40 draws: a frequency is off by 4 deviations at most.
        assert abs(closes - law[1].sum()) < 4 * 0.5 / math.sqrt(40)
        mean = law.sum(axis=0) @ np.arange(n + 1)
        spread = law.sum(axis=0) @ (np.arange(n + 1) - mean) ** 2
        assert abs(heights.mean() - mean) < 4 * math.sqrt(spread / 40)


@pytest.mark.parametrize(("name", "n"), [("parity", 5), ("dyck2", 4)])
def test_words_and_prefixes_are_those_of_the_language(name, n):
    strings = all_strings(len(get_language(name).symbols), n)
    model = get_source(name, 0.4)
    *_, prefixes, words = evaluate(model, strings)
    np.testing.assert_array_equal(words, get_language(name).contains(strings))
    if name != "parity":
        known = get_language(f"{name}_prefix").contains(strings)
        np.testing.assert_array_equal(prefixes, known)


@pytest.mark.parametrize("name", ["parity", "dyck2_depth4"])
def test_nothing_follows_what_is_no_prefix(name):
    model = get_source(name, 0.4)
    _, following, prefixes, words = evaluate(
        model, [[0, model.end, 0, 0], [-1, 0, 0, 0]]
    )
    assert (following[0, 1:] == 0).all()
    assert (following[1] == 0).all()
    assert not prefixes.any()
    assert not words.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_sampled_in_either_float_type_and_compiled_once(name):
    model = get_source(name, 0.25)
    with jax.enable_x64(False):
        short = np.asarray(model.sample(jax.random.key(0), 20, 200))
    assert short.dtype == np.int32
    law = {tuple(row) for row in model.prefixes(5).tolist()}
    assert {tuple(row) for row in short[:, :5].tolist()} <= law
    again = model.sample(jax.random.key(2), 20, 200)
    np.testing.assert_array_equal(again, model.sample(jax.random.key(2), 20, 200))
    assert hash(model) == hash(get_source(name, 0.25))
    keys = jax.random.split(jax.random.key(2), 3)
    each = jax.vmap(lambda key: model.sample(key, 20, 5))(keys)
    np.testing.assert_array_equal(each[1], model.sample(keys[1], 20, 5))


# Limits of P_0(n) over even and odd n, by p.
LIMITS = {
    0.1: (17 / 90, 13 / 18),
    0.25: (5 / 12, 2 / 3),
    0.4: (8 / 15, 7 / 12),
    0.5: (0.5, 0.5),
    0.6: (0.4, 0.4),
}


@pytest.mark.parametrize(("p", "limits"), LIMITS.items())
def test_p0_is_that_of_dynamic_programming_and_has_its_limits(p, limits):
    for n in (8, 9, 64, 65, 512, 513):
        found = heights.closing_above_ground(n, p)
        # A depth beyond n binds nowhere: the walk of the source, step by step.
        walk = BoundedDyckSource(p, 2, n + 1)
        assert found == pytest.approx(walk.step_law(n)[1, 1:].sum(), rel=1e-11)
        np.testing.assert_allclose(
            DyckSource(p).step_law(n),
            walk.step_law(n)[:, : n + 1],
            rtol=1e-11,
            atol=1e-300,
        )
        assert math.isclose(
            DyckSource(p).log_survival(n), walk.log_survival(n), rel_tol=1e-11
        )
    assert heights.limiting_closing_above_ground(p) == pytest.approx(limits, rel=1e-14)
    # At p = 1/2 the law of a survivor settles like 1/√n, elsewhere like 1/n.
    for odd, limit in enumerate(limits):
        far = heights.closing_above_ground(20000 + odd, p)
        assert far == pytest.approx(limit, abs=2e-3)


def test_survivors_follow_the_quasi_stationary_law_not_the_restarted_chain():
    ground = heights.height_law(2048, 0.25)[0]
    assert ground == pytest.approx(0.33479, abs=0.5e-5)
    limit = heights.limiting_height_law(0.25, 200)
    assert limit[0, 0] == pytest.approx(1 / 3, rel=1e-14)
    np.testing.assert_allclose(limit.sum(axis=1), 1, rtol=1e-12)
    # The restarted chain is there twice as often (tests/bounds/entropy/test_audit.py).
    for n in (4096, 4097):
        law = heights.height_law(n, 0.25)
        np.testing.assert_allclose(law[:20], limit[n % 2, :20], atol=1e-3)
    assert (heights.limiting_height_law(0.5, 9) == 0).all()


@pytest.mark.parametrize("p", [0.0, 1e-30, 1e-9, 0.3, 1 - 1e-9, 1.0])
def test_the_binary_entropy_keeps_its_digits_at_the_ends(p):
    with mpmath.workdps(60):
        exact = mpmath.mpf(p)
        terms = [x * mpmath.log(x) for x in (exact, 1 - exact) if x]
        wanted = float(-sum(terms))
    assert binary_entropy(p) == pytest.approx(wanted, rel=1e-14, abs=0)

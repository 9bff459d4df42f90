"""A function that is not ours is called in batches, and believed where batches are sound."""

import functools
from fractions import Fraction
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from bounds.influence.methods import function_blocks
from bounds.influence.scan import scan
from bounds.influence.table.frobenius import Frobenius
from bounds.numbers.kind import STATED
from jax_models.model.transformer import forward, read_logits
from tests.bounds.influence.asking import on_host
from tests.bounds.influence.expect import meet, refused
from tests.bounds.influence.models import TOKENS, build

V, N = 3, 12
MODEL = build({"num_layers": 1, "num_classes": 3})
# Of a row of logits of this size, far above what 1 layer in float64 rounds by.
RADIUS = 1e-12
TABLE = np.random.default_rng(1).normal(size=(N, V, 4))


def logits(model, tokens) -> Any:
    """All rows [n, v] of a transformer's own forward pass."""
    return read_logits(model, forward(model, tokens)[0])


def wrap(apply=logits, params=MODEL, **options) -> bounds.Callable:
    return bounds.Callable(
        apply, params, **{"batched": False, "vocab_size": V, **options}
    )


def table_sum(tokens) -> np.ndarray:
    """A vector [b, 4] of tokens [b, n], on the host."""
    return TABLE[np.arange(tokens.shape[1]), tokens].sum(axis=1)


@functools.cache
def wrapped(batched=False) -> bounds.Callable:
    """The model's pass with its radius: compiled once for all tests."""
    apply = jax.vmap(logits, in_axes=(None, 0)) if batched else logits
    return wrap(apply, batched=batched, radius=RADIUS)


def host(apply, **options) -> bounds.Callable:
    return on_host(apply, V, **{"batched": True, **options})


REDUCTIONS: list[Any] = [None, "none", "max", "mean", Frobenius(symmetrize="map")]


QUESTIONS: list[dict[str, Any]] = [
    *({"rows": "all", "reduce": reduce} for reduce in REDUCTIONS),
    {"rows": [7, -1], "diagonal": False},
    {"positions": [5, 2], "symbols": [2, 0], "rows": 0},
    {"rows": "all", "target_symbols": [2], "reduce": "max"},
]


@pytest.mark.parametrize(
    ("question", "batched"), [(x, bool(k % 2)) for k, x in enumerate(QUESTIONS)]
)
def test_a_scan_of_a_models_own_pass_is_that_of_the_model(question, batched):
    question = {"target": "logits", **question}
    expected = scan(MODEL, TOKENS, method="exhaustive", **question)
    found = scan(wrapped(batched), TOKENS, **question)
    assert found.axes == expected.axes
    if isinstance(question.get("reduce"), Frobenius):
        # Of it a stated radius says nothing.
        assert found.kind == "estimated"
        np.testing.assert_allclose(found.values, expected.values, atol=100 * RADIUS)
    else:
        assert meet(found, expected)
        assert found.kind == "exact"
        assert np.nanmax(found.upper - found.lower) > 0
    np.testing.assert_array_equal(found.target_symbols, expected.target_symbols)


def test_a_scan_of_another_models_pass_is_told_from_it():
    other = build({"num_layers": 1, "num_classes": 3}, seed=1)
    question = {"rows": "all", "target": "logits"}
    found = scan(wrap(params=other, radius=RADIUS), TOKENS, **question)
    assert not meet(found, scan(MODEL, TOKENS, **question))


@pytest.mark.parametrize("query", [-1, 4])
def test_influences_on_a_row_of_a_matrix_are_those_of_the_model(query):
    question = {"query": query, "target": "logits"}
    expected = bounds.compute_influence(MODEL, TOKENS, method="exhaustive", **question)
    found = bounds.compute_influence(wrapped(), TOKENS, **question)
    assert meet(found, expected)
    assert (found.kind, found.query) == ("exact", query % N)


def test_without_a_radius_and_parameters_nothing_is_enclosed():
    held = jnp.asarray(TABLE[0])
    model = wrap(lambda _, tokens: held[tokens], None)
    for reduce in REDUCTIONS:
        found = scan(model, TOKENS, rows="all", reduce=reduce)
        assert (found.kind, found.rounding) == ("estimated", "none")
        np.testing.assert_array_equal(found.lower, found.values)
        np.testing.assert_array_equal(found.upper, found.values)


@pytest.mark.parametrize("batched", [False, True])
def test_a_host_function_is_what_it_says_and_its_vector_has_no_rows(batched):
    apply = table_sum if batched else lambda tokens: table_sum(tokens[None])[0]
    function = host(apply, batched=batched)
    found = scan(function, TOKENS, reduce="none")
    assert found.axes == ("position", "symbol", "target")
    moved = TABLE - TABLE[np.arange(N), TOKENS][:, None]
    own = np.arange(V) == TOKENS[:, None]
    np.testing.assert_allclose(found.values[~own], moved[~own], atol=1e-12)
    norms = bounds.compute_influence(function, TOKENS, include_query=True)
    expected = np.linalg.norm(moved, axis=-1)[~own]
    np.testing.assert_allclose(norms.upper[~own], expected, atol=1e-12)


def test_a_scalar_is_signed_in_a_scan_and_a_size_as_an_influence():
    weights = jnp.asarray([-1.0, 2.0, 0.5])
    model = wrap(lambda w, tokens: w[tokens].sum(), weights)
    found = scan(model, TOKENS)
    assert found.axes == ("position", "symbol")
    moved = np.asarray(weights)[None] - np.asarray(weights)[TOKENS][:, None]
    there = ~np.isnan(found.values)
    np.testing.assert_allclose(found.values[there], moved[there], atol=1e-14)
    assert (found.values[there] < 0).any()
    size = bounds.compute_influence(model, TOKENS)
    assert size.max == pytest.approx(3.0)


def test_values_are_enclosed_at_the_stated_radius_for_every_reading():
    """Evaluations that are all off by r, one way or the other, are within two of them."""
    r, sign = 0.25, {0: 1.0, 1: -1.0, 2: 1.0}
    shift = lambda tokens: np.vectorize(sign.get)(tokens[:, :1]) * r / 2
    plain = host(table_sum, check=False)
    off = host(lambda x: table_sum(x) + shift(x), radius=r)
    for reduce in (None, "none", "max", "mean"):
        true, found = (scan(x, TOKENS, reduce=reduce) for x in (plain, off))
        there = ~np.isnan(true.values)
        assert (found.lower <= true.values)[there].all()
        assert (true.values <= found.upper)[there].all()
        assert (found.values != true.values)[there].any()


def test_two_inputs_of_one_length_are_traced_once():
    # Single passes, which a check makes, are a program of their own.
    for check, times in ((False, 1), (True, 2)):
        traced = []

        def apply(params, tokens, traced=traced):
            traced.append(tokens.shape)
            return logits(params, tokens)

        model = wrap(apply, check=check)
        for tokens in (TOKENS, (TOKENS + 1) % V):
            bounds.compute_influence(model, tokens)
        assert traced == [(N,)] * times


def test_parameters_are_arguments_of_the_program_and_no_constants():
    params = {"w": jnp.ones((V, 4096)), "name": "mean", "drop": 0.5, "on": False}

    def apply(params, tokens):
        assert params["name"] == "mean"
        assert params["on"] is False
        return params["w"][tokens].sum(axis=0) * params["drop"]

    model = wrap(apply, params)
    sizes = []
    for given in (model, wrap(lambda _, tokens: apply(params, tokens), None)):
        program: Any = given._run
        inputs = np.zeros((1, N), np.int32), np.zeros(1, np.int32)
        traced = program.trace(given.arrays, *inputs)
        sizes.append(sum(np.size(x) for x in traced.jaxpr.consts))
    assert sizes[0] == 0
    assert sizes[1] >= V * 4096, "the law is not told apart from constants"
    assert bounds.compute_influence(model, TOKENS).max == 0.0


def mixing(tokens):
    return table_sum(tokens) + 1e-6 * table_sum(tokens).mean(axis=0)


def mixing_traced(weights, tokens):
    sums = weights[tokens].sum(axis=1)
    return sums - sums.mean(axis=0)


def dropping(generator):
    return lambda tokens: table_sum(tokens) * (generator.random((len(tokens), 4)) > 0.5)


FAULTS = {
    "mixing": lambda: host(mixing),
    "mixing traced": lambda: wrap(mixing_traced, jnp.asarray(TABLE[0]), batched=True),
    "dropout": lambda: host(dropping(np.random.default_rng(0))),
    "order": lambda: host(lambda tokens: table_sum(tokens)[::-1]),
    "rolled": lambda: host(lambda tokens: np.roll(table_sum(tokens), 1, axis=0)),
    "integers": lambda: host(lambda x: x.sum(axis=1) + (len(x) > 1) * 10**9),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_batch_that_is_not_its_single_passes_is_refused(fault):
    message = r"batch of 25 differs by .*influence each other, dropout.*check=False$"
    with refused(message):
        scan(FAULTS[fault](), TOKENS)


def test_it_is_the_check_that_finds_them():
    assert np.isfinite(scan(host(mixing, check=False), TOKENS).values).any()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_check_allows_half_of_the_digits_of_the_float_type(dtype):
    root = float(np.finfo(dtype).eps) ** 0.5

    def off_by(times):
        def apply(tokens):
            ones = np.ones((len(tokens), 2))
            return (ones + (len(tokens) > 1) * times * root).astype(dtype)

        return host(apply)

    scan(off_by(0.5), TOKENS)
    with refused(rf"single pass, where {dtype} allows"):
        scan(off_by(2.0), TOKENS)


def test_a_host_function_may_write_to_its_input_and_use_its_buffer_again():
    buffer = np.empty((32, 4))

    def careless(tokens):
        buffer[: len(tokens)] = table_sum(tokens)
        tokens[:] = 0
        return buffer[: len(tokens)]

    found, expected = (scan(host(x), TOKENS) for x in (careless, table_sum))
    np.testing.assert_array_equal(found.values, expected.values)


def test_a_radius_without_its_base_is_caught(monkeypatch):
    none = lambda stated, inputs: np.zeros(len(inputs))
    monkeypatch.setattr(function_blocks, "_radii", none)
    with pytest.raises(AssertionError):
        test_values_are_enclosed_at_the_stated_radius_for_every_reading()


TERMS = 100_000
VALUES = np.asarray([0.3, 1000.0], np.float32)


def ask(function, tokens, radius=None) -> Any:
    held = on_host(function, 2, radius=radius, check=False)
    return bounds.compute_influence(held, tokens)


def sequential_sum(tokens):
    """The symbol's value and two long sums that cancel, one term after another."""
    terms = np.full(2 * TERMS, 1000, np.float32)
    terms[TERMS:] *= -1
    summed = np.add.accumulate(np.concatenate([VALUES[tokens[:1]], terms]))
    return summed[-1:]


def summation_radius(tokens):
    """γ_k of the sum of magnitudes, k the additions: what floats are known to keep."""
    unit, additions = 2.0**-24, 2 * TERMS
    gamma = additions * unit / (1 - additions * unit)
    return gamma * (float(VALUES[tokens[0]]) + 2 * TERMS * 1000.0)


TRUTH = float(Fraction(1000) - Fraction(float(VALUES[0])))


def test_a_sum_that_rounds_far_from_its_truth_is_not_called_exact():
    found = ask(sequential_sum, [0, 0])
    assert abs(found.max - TRUTH) > 0.2, "the case rounds too little to tell"
    assert (found.exact, found.kind) == (False, "estimated")
    assert "exact" not in repr(found)
    assert "[estimated]" in repr(found)
    # Nothing is claimed around it.
    np.testing.assert_array_equal(found.lower, found.upper)
    assert found.max_lower == found.max == found.max_upper


@pytest.mark.parametrize("radius", [summation_radius, summation_radius([1])])
def test_a_stated_radius_encloses_the_truth(radius):
    found = ask(sequential_sum, [0, 0], radius=radius)
    assert found.kind == "enclosure", "it is many times what the sum is"
    assert found.max_lower <= TRUTH <= found.max_upper
    assert found.hypotheses == (STATED,)


def test_no_change_within_a_wide_radius_is_not_called_exact():
    found = ask(lambda tokens: np.ones(2), [0, 0], radius=0.8)
    assert (found.max, found.kind) == (0.0, "enclosure")
    assert "max=0 (below 1.7) [enclosure]" in repr(found)
    found = ask(lambda tokens: np.ones(2) * tokens[0], [0, 0], radius=1e-3)
    assert found.kind == "exact"


@pytest.mark.parametrize("which", ["number", "function"])
def test_the_ends_are_two_radii_and_the_rounding_of_the_norm_away(which):
    def function(tokens):
        return np.asarray([3.0, 4.0]) * tokens[0]

    def of_tokens(tokens):
        assert tokens.shape == (2,)
        return 0.25 if tokens[0] else 0.5

    given, expected = (0.25, 0.5) if which == "number" else (of_tokens, 0.75)
    found = ask(function, [0, 0], radius=given)
    assert 5 - expected - 1e-13 < found.max_lower < 5 - expected
    assert 5 + expected < found.max_upper < 5 + expected + 1e-13


def test_two_radii_are_not_added_to_less_than_their_sum():
    """1 + 2^-53 is 1 in floating point; a function that stays has nothing beside it."""
    small = 2.0**-53
    radius = lambda tokens: small if tokens.any() else 1.0
    found = ask(lambda tokens: np.ones(1), [0, 0], radius=radius)
    assert Fraction(found.max_upper) >= Fraction(1) + Fraction(small)

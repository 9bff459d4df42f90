"""Ascents stay in their domain, end no lower than they began, and tell the truth."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.lemma5.lipschitz.ascent import Point, ascend, ascend_tokens
from bounds.lemma5.lipschitz.domain import ball_radius, make_ball, make_simplex
from bounds.lemma5.lipschitz.jacobian import output_at
from jax_models.model.transformer import embed, encode_positions

pytestmark = pytest.mark.usefixtures("quick_compilation")
N, QUERY = 6, 5
MODEL = jm.random_transformer(
    jax.random.key(4),
    num_layers=2,
    num_heads=1,
    d_model=4,
    d_ff=8,
    vocab_size=3,
    dtype="float64",
)
TOKENS = jnp.asarray([0, 1, 2, 0, 1, 1], jnp.int32)
SYMBOLS = jnp.arange(3, dtype=jnp.int32)
HOW = {"query": QUERY, "target": "activation"}
DOMAINS = {"ball": make_ball(MODEL, N), "simplex": make_simplex(MODEL, N)}


def start(domain, position=1):
    rows = embed(MODEL, TOKENS)
    hot = jnp.asarray(TOKENS[:, None] == SYMBOLS, jnp.float64)
    variable = rows if domain.name == "ball" else hot
    direction = jnp.ones(domain.basis.shape[1])
    free = jnp.asarray([True, True, True, True, False, True])
    return Point(variable, direction, jnp.asarray(position), rows, free)


@pytest.fixture(params=DOMAINS)
def ascent(request):
    domain = DOMAINS[request.param]
    return domain, *ascend(MODEL, domain, start(domain), steps=30, **HOW)


def test_the_value_is_a_local_norm_at_the_point_found(ascent):
    domain, value, point = ascent
    rows = point.rows(domain)
    blocks = jax.jit(jax.jacfwd(lambda z: output_at(MODEL, z, **HOW)))(rows)
    block = np.asarray(blocks[:, int(point.position)])
    unit = np.asarray(domain.basis @ point.direction)
    unit = unit / np.linalg.norm(unit)
    assert float(value) == pytest.approx(np.linalg.norm(block @ unit), rel=1e-9)
    restricted = block @ np.asarray(domain.basis)
    largest = np.linalg.svd(restricted, compute_uv=False)[0]
    assert float(value) <= largest * (1 + 1e-12)


def test_the_point_is_in_the_domain_and_fixed_rows_stay(ascent):
    domain, _, point = ascent
    rows = np.asarray(point.rows(domain))
    assert (np.linalg.norm(rows, axis=1) <= ball_radius(MODEL, N) * (1 + 1e-12)).all()
    np.testing.assert_array_equal(rows[4], np.asarray(embed(MODEL, TOKENS))[4])
    if domain.name == "simplex":
        mixture = np.asarray(point.variable)
        assert (mixture >= 0).all()
        np.testing.assert_allclose(mixture.sum(axis=1), 1, rtol=1e-12)
        expected = mixture @ np.asarray(MODEL.embedding)
        expected = expected + np.asarray(encode_positions(MODEL, N))
        np.testing.assert_allclose(np.delete(rows, 4, 0), np.delete(expected, 4, 0))


def test_the_ascent_gains_and_the_ball_gains_more_than_mixtures():
    found = {}
    for name, domain in DOMAINS.items():
        many, _ = ascend(MODEL, domain, start(domain), steps=30, **HOW)
        blocks = jax.jit(jax.jacfwd(lambda z: output_at(MODEL, z, **HOW)))(
            embed(MODEL, TOKENS)
        )
        first = np.linalg.norm(np.asarray(blocks[:, 1] @ domain.basis), 2)
        found[name] = float(many)
        assert float(many) > 1.05 * first
    assert found["ball"] > found["simplex"]


def test_the_radius_is_the_largest_row_of_any_token_anywhere():
    rows = [
        np.asarray(MODEL.embedding)[s] + np.asarray(encode_positions(MODEL, N))[j]
        for s, j in itertools.product(range(3), range(N))
    ]
    largest = max(np.linalg.norm(row) for row in rows)
    assert ball_radius(MODEL, N) == pytest.approx(largest, rel=1e-14)


def test_mixtures_move_between_tokens_only():
    basis = np.asarray(DOMAINS["simplex"].basis)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-12)
    differences = np.asarray(MODEL.embedding)[1:] - np.asarray(MODEL.embedding)[:1]
    np.testing.assert_allclose(differences @ basis @ basis.T, differences)


def changes(tokens, position, symbol):
    """|y_q(x with x_i := s) - y_q(x)| by the definition."""
    other = tokens.copy()
    other[position] = symbol
    outputs = [np.asarray(jm.apply(MODEL, x))[QUERY] for x in (tokens, other)]
    return np.linalg.norm(outputs[1] - outputs[0])


def test_discrete_ascent_gains_and_never_passes_the_best_input():
    free = np.array([True, True, True, True, False, True])
    arguments = (TOKENS, jnp.asarray(1), jnp.asarray(2), jnp.asarray(free), SYMBOLS)
    x, value, rounds = ascend_tokens(MODEL, *arguments, rounds=20, **HOW)
    x = np.asarray(x)
    assert float(value) == pytest.approx(changes(x, 1, 2), rel=1e-9)
    assert x[1] == TOKENS[1]
    assert x[4] == TOKENS[4]
    assert float(value) > changes(np.asarray(TOKENS), 1, 2)
    # Every other input with the same tokens at the two places that may not change.
    best = 0.0
    for others in itertools.product(range(3), repeat=4):
        other = np.asarray(TOKENS).copy()
        other[[0, 2, 3, 5]] = others
        best = max(best, changes(other, 1, 2))
    assert float(value) <= best * (1 + 1e-9)
    assert float(value) > 0.8 * best
    assert 1 < int(rounds) < 20


def test_no_round_is_wasted_where_nothing_gains():
    none = jnp.zeros(N, bool)
    arguments = (TOKENS, jnp.asarray(1), jnp.asarray(2), none, SYMBOLS)
    x, value, rounds = ascend_tokens(MODEL, *arguments, rounds=20, **HOW)
    np.testing.assert_array_equal(x, TOKENS)
    assert float(value) == pytest.approx(changes(np.asarray(TOKENS), 1, 2), rel=1e-9)
    assert int(rounds) == 2

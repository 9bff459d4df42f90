"""Products of what moves in half precision, and of nothing else in a traced program."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.rounding.precision import PRECISIONS, Rounding
from bounds.rounding.rounded_block import round_products

HIGHEST = jax.lax.Precision.HIGHEST
DRAWS = np.random.default_rng(0)
# Half the distance of 1 to the next number.
ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11}


def dot(x, y):
    return jnp.einsum("hik,jhk->hij", x, y, precision=HIGHEST)


def operands(dtype, spread=0.0):
    """Two arrays, whose rows differ in size by many powers of ten."""
    sizes = np.exp(spread * DRAWS.normal(size=(3, 5, 1)))
    rows = DRAWS.normal(size=(3, 5, 40)) * sizes, DRAWS.normal(size=(7, 3, 40)) * 1e-9
    return tuple(jnp.asarray(x.astype(dtype)) for x in rows)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", sorted(ROUNDOFF))
def test_products_are_off_by_what_rounding_their_operands_allows(name, dtype):
    one, two = operands(dtype, spread=8.0)
    sizes, exact = dot(abs(one), abs(two)), dot(one, two)
    error = {}
    for parts in ((1, 1), (2, 1), (1, 2), (2, 2)):
        rounding = Rounding(name, *parts)
        found = round_products(rounding, dot, (one, two), (False, True))
        error[parts] = np.max(np.abs(found - exact) / sizes)
    u = ROUNDOFF[name]
    assert u / 50 < error[1, 1] < 2 * u + u**2
    assert u / 50 < error[2, 1] < u + 4 * u**2
    assert u / 50 < error[1, 2] < u + 4 * u**2
    assert error[2, 2] < 4 * u**2 + 50 * np.finfo(dtype).eps


@pytest.mark.parametrize("name", sorted(ROUNDOFF))
def test_numbers_of_the_type_are_multiplied_exactly(name):
    shapes = (3, 5, 40), (7, 3, 40)
    one, two = (jnp.asarray(DRAWS.integers(-99, 100, x) * 1.0) for x in shapes)
    found = round_products(Rounding(name), dot, (one, two), (True, True))
    np.testing.assert_array_equal(found, dot(one, two))


def program(times, base, change):
    """Products of both kinds in a loop, a branch, a call, a map and a counted loop."""
    fixed = full(base, base)

    def step(carry, row):
        still, moving = carry
        still = jnp.tanh(full(base, still))
        moving = times(base * still, moving) + row
        return (still, moving), moving

    # The carry begins still, and moves from the second round on.
    start = jnp.ones(4, base.dtype), jnp.zeros(4, base.dtype)
    (still, moving), rows = jax.lax.scan(step, start, change)
    branches = (lambda x: times(fixed, x), lambda x: x)
    moving = jax.lax.cond(still[0] > 5, branches[1], branches[0], moving)
    moving = jax.jit(lambda x: times(base, x))(moving)
    rows = jax.vmap(lambda x: times(fixed, x))(rows)
    bound = jnp.int32(2) + (still[0] > 5).astype(jnp.int32)
    moving = jax.lax.fori_loop(0, bound, lambda _, x: times(base, x), moving)
    return full(fixed, still), rows, moving


def full(matrix, x):
    return jnp.matmul(matrix, x, precision=HIGHEST)


def multiplied(rounding, matrix, x):
    """The product of a matrix that stays with what has moved."""
    options = {"dimension_numbers": (((1,), (0,)), ((), ()))}
    return rounding.product((matrix, x), (False, True), options)


def by_branch(base, change):
    """One of two arrays that do not move, by a number that does."""
    return jax.lax.cond(change > 0, lambda: base[0], lambda: base[1])


def by_rounds(base, change):
    """An array that does not move, as often multiplied as a moved number says."""
    rounds = change.astype(jnp.int32)
    return jax.lax.fori_loop(0, rounds, lambda _, x: base[1] * x, base[0])


def beside(base, change):
    """An array that does not move, from a branch that has a moved number too."""
    branches = (lambda x: (base[0], x), lambda x: (base[1], -x))
    return jax.lax.cond(base[0, 0, 0] > 9, *branches, change)[0]


@pytest.mark.parametrize("rounding", PRECISIONS.values(), ids=PRECISIONS)
@pytest.mark.parametrize(
    ("chosen", "moves"), [(by_branch, True), (by_rounds, True), (beside, False)]
)
def test_what_a_moved_number_chooses_has_moved(chosen, moves, rounding):
    base, change = jnp.asarray(DRAWS.normal(size=(2, 4, 4))), jnp.full((), 2.0)
    whole = lambda base, change: full(base[1], chosen(base, change))
    found = round_products(rounding, whole, (base, change), (False, True))
    plain = whole(base, change)
    if not moves:
        np.testing.assert_array_equal(found, plain)
        return
    by_hand = multiplied(rounding, base[1], chosen(base, change))
    np.testing.assert_allclose(found, by_hand, rtol=1e-14)
    assert (found != plain).any()


@pytest.mark.parametrize("rounding", PRECISIONS.values(), ids=PRECISIONS)
def test_what_moves_is_rounded_and_nothing_else_wherever_it_stands(rounding):
    base, change = (jnp.asarray(DRAWS.normal(size=(k, 4))) for k in (4, 3))
    by_hand = functools.partial(multiplied, rounding)
    whole = functools.partial(program, full)
    found = round_products(rounding, whole, (base, change), (False, True))
    expected = program(by_hand, base, change)
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-14)
    plain = program(full, base, change)
    np.testing.assert_allclose(found[0], plain[0], rtol=1e-14)
    assert np.max(np.abs(found[2] / plain[2] - 1)) > ROUNDOFF[rounding.name] / 100


@pytest.mark.parametrize("name", sorted(PRECISIONS))
def test_an_accelerator_multiplies_numbers_of_the_type_and_sums_in_float32(name):
    one, two = operands("float32")

    def rounded(x, y):
        return round_products(PRECISIONS[name], dot, (x, y), (False, True))

    traced = jax.jit(rounded).trace(one, two)
    kind = {"bfloat16": "bf16", "float16": "f16"}[name]
    lines = traced.lower(lowering_platforms=("cuda",)).as_text().splitlines()
    # One more, of one term each, is of the powers of two that rows were divided by.
    *products, scales = [line for line in lines if "dot_general" in line]
    assert "x1xf32>" in scales
    assert len(products) == PRECISIONS[name].fixed
    for line in products:
        before, after = line.split(" : ")[1].split("->")
        assert before.count(f"x{kind}>") == 2, line
        assert "xf32>" in after, line

"""Operations are counted as the compiler counts them where it goes through loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.operations import count_operations, count_traffic, program_bytes

WIDE = jax.ShapeDtypeStruct((16, 16), np.float64)


def step(x, y):
    return jnp.tanh(x @ y) + x * 2.0, None


def looped(x):
    return jax.lax.scan(lambda c, _: step(c, x), x, None, length=10)[0]


def unrolled(x):
    y = x
    for _ in range(10):
        y, _ = step(y, x)
    return y


def test_a_loop_counts_as_often_as_it_goes_round():
    by_hand = 10 * (2 * 16**3 + 3 * 16**2)
    assert count_operations(jax.make_jaxpr(looped)(WIDE)) == by_hand
    assert count_operations(jax.make_jaxpr(unrolled)(WIDE)) == by_hand


def test_without_loops_it_is_the_compilers_count():
    """Which holds exponentials and the like apart, and counts a loop's body once."""
    told = jax.jit(unrolled).lower(WIDE).cost_analysis()
    assert count_operations(jax.make_jaxpr(unrolled)(WIDE)) == pytest.approx(
        told["flops"] + told["transcendentals"], rel=1e-3
    )
    once = jax.jit(looped).lower(WIDE).cost_analysis()
    assert once["flops"] < told["flops"] / 5


def test_calls_branches_and_batches_are_gone_into():
    def either(x):
        inner = jax.jit(lambda z: z @ z)
        return jax.lax.cond(x[0, 0] > 0, lambda: inner(inner(x)), lambda: x + 1.0)

    count = count_operations(jax.make_jaxpr(either)(WIDE))
    assert count == 2 * 2 * 16**3  # the costlier branch
    batch = jax.ShapeDtypeStruct((5, 16, 16), np.float64)
    product = jax.vmap(lambda x: x @ x)
    assert count_operations(jax.make_jaxpr(product)(batch)) == 5 * 2 * 16**3


def test_memory_is_that_of_arguments_results_and_buffers():
    square = jax.jit(lambda x: x @ x).trace(WIDE)
    assert count_operations(square.jaxpr) == 2 * 16**3
    held = program_bytes(square)
    assert held is not None
    assert 2 * 16 * 16 * 8 <= held < 10 * 16 * 16 * 8


def test_traffic_is_every_operand_and_result_as_often_as_a_loop_goes_round():
    # The product of two and its result, tanh, the product with 2.0, the sum.
    each = 8 * 16**2 * (3 + 2 + 2 + 3) + 8
    assert count_traffic(jax.make_jaxpr(looped)(WIDE)) == 10 * each
    assert count_traffic(jax.make_jaxpr(unrolled)(WIDE)) == 10 * each


def test_a_slice_moves_its_own_bytes_alone():
    def rows(x):
        part = jax.lax.slice(x, (0, 0), (3, 16))
        return jax.lax.dynamic_update_slice(x, part, (4, 0))

    # Two indices are compared and wrapped on the way, which is little.
    traffic = count_traffic(jax.make_jaxpr(rows)(WIDE))
    assert 4 * 3 * 16 * 8 <= traffic < 4 * 3 * 16 * 8 + 200

"""What is not a number bounds nothing: the comparisons, and who may compare at all."""

import ast
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import bounds.lemma5.certificate
from bounds.lemma5.certificate import order

INF, NAN = np.inf, np.nan
PACKAGE = pathlib.Path(bounds.lemma5.certificate.__file__).parent
ORDERED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
EXTREMES = {"min", "max", "minimum", "maximum", "fmin", "fmax", "clip", "nan_to_num"}
# (module, function): why a NaN cannot be taken for a number there.
COMPARES = {
    ("certify", "bound_all_inputs"): "sizes of arrays; bounds are no NaN",
    ("own_column", "_map_tiles"): "sizes of arrays",
    ("base_pass", "_batch"): "sizes of arrays",
    (
        "certify",
        "certify_influence",
    ): "bounds are no NaN, a table has one where no bound is",
    ("certify", "Certificate"): "of the maximum, which is no NaN",
    ("certify", "_bounds"): "a maximum that keeps NaN; numbers of substitutions",
}


def comparisons(source):
    """Functions in which numbers are compared, and the lines."""
    found = []
    for function in ast.parse(source).body:
        for node in ast.walk(function):
            if isinstance(node, ast.Compare):
                compares = any(isinstance(x, ORDERED) for x in node.ops)
            elif isinstance(node, ast.Attribute):
                # A method is a reduction, which keeps NaN.
                module = isinstance(node.value, ast.Name) and node.value.id in {
                    "jnp",
                    "np",
                    "lax",
                }
                compares = node.attr in EXTREMES and module
                compares &= node.attr not in {"max", "min"}
            else:
                compares = isinstance(node, ast.Name) and node.id in EXTREMES
            if compares:
                found.append(
                    (getattr(function, "name", ""), getattr(node, "lineno", 0))
                )
    return found


def test_only_the_module_of_comparisons_compares_what_may_be_no_number():
    found = {}
    for path in sorted(PACKAGE.glob("*.py")):
        if path.stem != "order":
            for function, line in comparisons(path.read_text()):
                found.setdefault((path.stem, function), []).append(line)
    assert found.keys() == COMPARES.keys(), found


@pytest.mark.parametrize(
    "line",
    [
        "jnp.where(radius > 0, carried * radius, 0.0)",
        "jnp.where(0 >= radius, 0.0, carried)",
        "jnp.minimum(radius, cap)",
        "jnp.fmax(radius, 0)",
        "jnp.clip(radius, 0, 1)",
        "max(radius, float(other))",
        "functools.reduce(jnp.maximum, radii)",
    ],
)
def test_a_comparison_is_found(line):
    assert comparisons(f"def carry(radius):\n    return {line}") == [("carry", 2)]
    assert not comparisons(
        "def carry(radius):\n    return least(radius, x == 0).max(0)"
    )


def test_an_exact_zero_times_anything_is_zero_and_nothing_else_is():
    gain = jnp.array([2.0, INF, NAN, 2.0, 0.0, NAN, 0.0, INF])
    radius = jnp.array([0.0, 0.0, 0.0, 3.0, INF, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(
        order.times(gain, radius), [0, 0, 0, 6, INF, INF, 0, INF]
    )
    np.testing.assert_array_equal(order.times(1.0, jnp.array([NAN, INF])), [INF, INF])


def test_a_cap_holds_beside_what_is_no_number():
    one, other = jnp.array([1.0, NAN, NAN, INF]), jnp.array([2.0, 2.0, NAN, NAN])
    np.testing.assert_array_equal(order.least(one, other), [1, 2, INF, INF])
    np.testing.assert_array_equal(order.least(other, one, 0.5), [0.5] * 4)
    np.testing.assert_array_equal(order.greatest(one, other), [2, INF, INF, INF])
    np.testing.assert_array_equal(order.bounded(one), [1, INF, INF, INF])


def test_nothing_is_sure_of_what_is_no_number():
    one, other = jnp.array([1.0, 2.0, NAN, 1.0]), jnp.array([0.0, 2.0, 1.0, NAN])
    np.testing.assert_array_equal(order.surely_above(one, other), [1, 0, 0, 0])
    np.testing.assert_array_equal(order.perhaps_above(one, other), [1, 0, 1, 1])


def test_a_bound_rests_on_finite_numbers():
    computed = jnp.array([1.0, INF, -INF, NAN])
    found = order.resting_on(jnp.ones(4), computed, jnp.zeros(()))
    np.testing.assert_array_equal(found, [1, INF, INF, INF])
    centre = jnp.array([[1.0, 2.0], [NAN, 0.0], [INF, 0.0], [3.0, 0.0]])
    moved, radius = order.settle(centre, jnp.array([0.5, 0.0, 0.0, NAN]))
    np.testing.assert_array_equal(radius, [0.5, INF, INF, INF])
    np.testing.assert_array_equal(moved, [[1, 2], [0, 0], [0, 0], [0, 0]])

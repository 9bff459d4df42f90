"""Inputs of a program moved by sixteen roundings, so that the program rounds anew.

Every float entry x becomes x (1 +- 16 u), u the unit roundoff of its type. Signs are a
hash of contents and of the number of the run, from 1: they are equal on any device and
in any order of work. Arrays formed inside a program move there
(`jax_models.run.perturbation`).

Source:
    Vignes 1993, A stochastic arithmetic for reliable scientific computation (CESTAC):
    redrawn roundings. Parker 1997, Monte Carlo arithmetic.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Shaped

from jax_models.run.perturbation import UNITS

# Runs of a program with moved inputs, each with other signs.
RUNS = 4
# From the unit roundoff of a type to the relative move of its numbers.
Step: TypeAlias = Callable[[float], float]


def sixteen_units(unit: float) -> float:
    """16 u for the unit roundoff u: enough that results of a moved number round anew."""
    return UNITS * unit


def move_alike(tree: Any, run: int, step: Step = sixteen_units) -> Any:
    """Pytree with every float moved, equal entries of an array in one direction."""
    # Equal entries stay equal: symbols, heads, ties.
    return _moved(tree, run, step, alike=True)


def move_apart(tree: Any, run: int, step: Step = sixteen_units) -> Any:
    """Pytree with every float moved, each entry of an array with a sign of its own."""
    return _moved(tree, run, step, alike=False)


def float_leaves(tree: Any) -> list[Any]:
    """Leaves of a pytree that are floats or arrays of floats, as a list."""
    return [x for x in jax.tree.leaves(tree) if _is_float(x)]


def unit_of(tree: Any) -> float:
    """Largest unit roundoff of a pytree's arrays of floats; 2^-53 if it has none."""
    arrays = [x for x in float_leaves(tree) if np.ndim(x)]
    units = [float(jnp.finfo(jnp.result_type(x)).eps) / 2 for x in arrays]
    return max(units, default=2.0**-53)


def _moved(tree: Any, run: int, step: Step, alike: bool) -> Any:
    leaves, structure = jax.tree.flatten(tree)
    least = step(unit_of(tree))
    # The run and the number of the leaf: equal arrays in two places move apart.
    moved = [
        _move(x, least, step, (run << 32) + at, alike) for at, x in enumerate(leaves)
    ]
    return jax.tree.unflatten(structure, moved)


def _is_float(leaf: Any) -> bool:
    return isinstance(leaf, float) or (
        hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.floating)
    )


def _move(leaf: Any, least: float, step: Step, salt: int, alike: bool) -> Any:
    """Leaf of a pytree with its floats moved, type kept; unchanged without floats."""
    if not _is_float(leaf):
        return leaf
    values = np.array(leaf, order="C")  # of 0 axes too
    # Signs are a hash of an entry's bits, or of its place: never of a device or an order of
    # work.
    keys = values.view(f"u{values.itemsize}") if alike else np.arange(values.size)
    negative = _signs(keys.reshape(values.shape), salt)
    # A number is rounded like the arrays of its pytree.
    is_number = isinstance(leaf, float)
    far = least if is_number else step(float(jnp.finfo(values.dtype).eps) / 2)
    factor = np.where(negative, 1 - far, 1 + far).astype(values.dtype)
    with np.errstate(over="ignore"):  # an infinite result has an infinite radius
        moved = jax.device_put(values * factor)
    return float(moved) if is_number else moved


def _signs(
    keys: Shaped[np.ndarray, "*entries"], salt: int
) -> Bool[np.ndarray, "*entries"]:
    """Hash of each key and `salt` to a bit: finaliser of splitmix64 (Steele et al. 2014)."""
    z = np.atleast_1d(keys).astype(np.uint64)  # arrays wrap around without a warning
    z = z + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) & np.uint64(1)).astype(bool).reshape(keys.shape)

"""Traces of the programs that a method will run on a request, without running them.

An `Outline` has shapes where a `Kernel` has arrays.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bounds.influence.blocks.kernel import Part


@dataclasses.dataclass(frozen=True)
class Outline:
    """Programs of a method, traced from shapes, with the fields of a `Kernel`."""

    base: jax.stages.Traced  # the pass that all blocks share
    function: Callable[..., Any]
    shared: tuple[Any, ...]
    parts: tuple[Part, ...]

    def trace(self, part: Part) -> jax.stages.Traced:
        """Program of one block of a part, on one device."""
        one = jax.ShapeDtypeStruct((part.batch,), jnp.int32)
        function: Any = self.function
        return function.trace(*self.shared, one, one, **part.options)


def shapes_of(tree: Any) -> Any:
    """Shapes of a pytree of arrays, or of a trace's results."""

    def shape(x: Any) -> jax.ShapeDtypeStruct:
        if not hasattr(x, "shape"):  # a number, as a temperature is: its type gives way
            kind = jax.typeof(x)
            return jax.ShapeDtypeStruct(kind.shape, kind.dtype, weak_type=True)
        weak = getattr(x, "weak_type", False)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=weak)

    return jax.tree.map(shape, tree)

"""What a method will run on a problem, found out without running it.

An `Outline` has shapes where a `Kernel` has arrays. From it come the number of blocks, the
arithmetic and the memory of each, and of the base pass that all of them share.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from bounds.influence.arithmetic import ProgramWork, count_operations, measure_work
from bounds.influence.kernel import Part


@dataclasses.dataclass(frozen=True)
class Outline:
    """The programs of a method, traced from shapes; the fields are those of `Kernel`."""

    base: jax.stages.Traced  # the pass that all blocks share
    function: Callable[..., Any]
    shared: tuple[Any, ...]
    parts: tuple[Part, ...]

    def trace(self, part: Part) -> jax.stages.Traced:
        """Returns the program of one block of a part, on one device."""
        one = jax.ShapeDtypeStruct((part.batch,), jnp.int32)
        function: Any = self.function
        return function.trace(*self.shared, one, one, **part.options)


@dataclasses.dataclass(frozen=True)
class Requirement:
    """What a problem will take, by its outline."""

    blocks: int
    batch: int  # substitutions of a block on each device
    base: ProgramWork
    block: ProgramWork  # of the largest part, on each device
    flops: float  # of all blocks on all devices, and of the base pass once


def shapes_of(tree: Any) -> Any:
    """Returns a pytree of arrays, or of what a trace says of them, as their shapes."""

    def shape(x: Any) -> jax.ShapeDtypeStruct:
        if not hasattr(x, "shape"):  # a number, as a temperature is: its type gives way
            kind = jax.typeof(x)
            return jax.ShapeDtypeStruct(kind.shape, kind.dtype, weak_type=True)
        weak = getattr(x, "weak_type", False)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=weak)

    return jax.tree.map(shape, tree)


def estimate_work(outline: Outline, devices: int = 1) -> Requirement:
    """Returns what the blocks of an outline will take.

    Args:
        outline: of a method and a problem with substitutions.
        devices: how many a block is shared out over.
    """
    base = measure_work(outline.base)
    blocks, flops = 0, base.flops
    for part in outline.parts:
        count = part.end - part.start
        rounds = math.ceil(count / (part.batch * devices))
        blocks += rounds
        flops += rounds * devices * count_operations(outline.trace(part).jaxpr)
    largest = max(outline.parts, key=lambda part: part.end - part.start)
    return Requirement(
        blocks, largest.batch, base, measure_work(outline.trace(largest)), flops
    )

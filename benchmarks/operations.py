"""Counts of a program's arithmetic and memory, made before it runs.

Floating-point operations are counted in the traced program: 2 for each product of a
matrix product, 1 for each element of an elementwise function (an exponential too) or of
a reduction; moving, comparing and choosing count nothing. A loop counts as often as it
goes round. The compiler's own `cost_analysis` counts the body of a loop once, and on some
accelerators no matrix product that a library does, so that what it says of a program
that folds tiles is too small by the number of tiles.

Memory is the compiler's account of its buffers, `memory_analysis`. Traffic is counted in the
traced program as if every operation read its operands from memory and wrote its result
there: no compiler does as much, since it fuses operations and caches keep what is small.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Jaxpr

from bounds.influence.blocks.kernel import Kernel, Part
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Method
from bounds.influence.request import InfluenceRequest

ELEMENTWISE = frozenset(
    "acos acosh add add_any asin asinh atan atan2 atanh cbrt cos cosh digamma div erf "
    "erf_inv erfc exp exp2 expm1 integer_pow lgamma log log1p logistic max min mul neg "
    "nextafter pow rem round rsqrt sign sin sinh sqrt square sub tan tanh abs "
    "floor ceil clamp".split()
)
REDUCTIONS = frozenset(
    "argmax argmin cumlogsumexp cummax cummin cumprod cumsum reduce_max reduce_min "
    "reduce_prod reduce_sum".split()
)
# What reads as much as it returns, and what changes a part in place: which operand.
SLICES = frozenset({"dynamic_slice", "gather", "slice"})
UPDATES = {"dynamic_update_slice": 1, "scatter": 2, "scatter-add": 2}


class TracedBase(SharedBase):
    """Holder of base passes that are traced, with shapes in place of their results."""

    def __init__(self) -> None:
        """Holds nothing yet."""
        super().__init__()
        self.traced: list[jax.stages.Traced] = []

    def run(self, function: Any, *given: Any) -> Any:
        """Shapes of the result of a compiled function, which is traced alone."""
        self.traced.append(function.trace(*shapes_of(given)))
        return shapes_of(self.traced[-1].out_info)


@dataclasses.dataclass(frozen=True)
class Outline:
    """Traced base pass of a method, and its `Kernel` with shapes in place of arrays."""

    base: jax.stages.Traced  # the pass that all blocks share
    kernel: Kernel

    @classmethod
    def of(cls, method: Method, request: InfluenceRequest) -> "Outline":
        """Outline of a method with a kernel; nothing is run."""
        shared = TracedBase()
        kernel = method.kernel(dataclasses.replace(request, shared=shared))
        assert kernel is not None
        shapes = shapes_of(kernel.shared)
        return cls(shared.traced[0], dataclasses.replace(kernel, shared=shapes))

    def trace(self, part: Part) -> jax.stages.Traced:
        """Program of one block of a part, on one device."""
        one = jax.ShapeDtypeStruct((part.batch,), jnp.int32)
        function: Any = self.kernel.function
        return function.trace(*self.kernel.shared, one, one, **part.options)


def shapes_of(tree: Any) -> Any:
    """Shapes of a pytree of arrays, or of a trace's results."""

    def shape(x: Any) -> jax.ShapeDtypeStruct:
        if not hasattr(x, "shape"):  # a number, as a temperature is: its type gives way
            kind = jax.typeof(x)
            return jax.ShapeDtypeStruct(kind.shape, kind.dtype, weak_type=True)
        weak = getattr(x, "weak_type", False)
        return jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=weak)

    return jax.tree.map(shape, tree)


def influence_operations(outline: Outline) -> float:
    """Returns the operations of all blocks and the base pass, from traces alone."""
    total = count_operations(outline.base.jaxpr)
    for part in outline.kernel.parts:
        count = part.end - part.start
        rounds = math.ceil(count / min(part.batch, count))
        total += rounds * count_operations(outline.trace(part).jaxpr)
    return total


def program_bytes(traced: jax.stages.Traced) -> int | None:
    """Returns the bytes of a program's buffers once compiled; None if unknown."""
    memory = traced.lower().compile().memory_analysis()
    names = ("argument", "output", "temp")
    if memory is None:
        return None
    return sum(getattr(memory, f"{name}_size_in_bytes") for name in names)


def count_operations(program: ClosedJaxpr | Jaxpr) -> float:
    """Returns the floating-point operations of a traced program.

    Of the branches of a condition the costliest counts; a loop whose number of rounds is
    found out while it runs counts once.
    """
    return _total(program, _operations)


def count_traffic(program: ClosedJaxpr | Jaxpr) -> float:
    """Returns the bytes that a traced program's operations read and write, each alone.

    An upper bound on what moves: nothing is fused, nothing stays in a cache. Reading a
    slice reads that slice, and updating one writes it. Branches and loops count as in
    `count_operations`.
    """
    return _total(program, _traffic)


def _total(program: ClosedJaxpr | Jaxpr, each: Callable[[Any], float]) -> float:
    """Sum of `each` over a program's operations, loops counted once for every round."""
    jaxpr = program.jaxpr if isinstance(program, ClosedJaxpr) else program
    return sum(_count(equation, each) for equation in jaxpr.eqns)


def _count(equation: Any, each: Callable[[Any], float]) -> float:
    name = equation.primitive.name
    inner = [_total(one, each) for one in _programs(equation.params)]
    if name == "cond":
        return max(inner)
    if name == "scan":
        return equation.params["length"] * sum(inner)
    return sum(inner) if inner else each(equation)


def _operations(equation: Any) -> float:
    name = equation.primitive.name
    (result, *_) = equation.outvars or [None]
    if result is None or not jnp.issubdtype(_operand(equation), jnp.floating):
        return 0
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        return (
            2 * math.prod(result.aval.shape) * math.prod(shape[i] for i in contracted)
        )
    if name in REDUCTIONS:
        return math.prod(equation.invars[0].aval.shape)
    return math.prod(result.aval.shape) if name in ELEMENTWISE else 0


def _traffic(equation: Any) -> float:
    name = equation.primitive.name
    if name in SLICES:
        return 2 * sum(_bytes(one) for one in equation.outvars)
    if name in UPDATES:
        return 2 * _bytes(equation.invars[UPDATES[name]])
    return sum(_bytes(one) for one in (*equation.invars, *equation.outvars))


def _bytes(variable: Any) -> int:
    shaped = variable.aval
    return math.prod(shaped.shape) * shaped.dtype.itemsize


def _operand(equation: Any) -> Any:
    return equation.invars[0].aval.dtype if equation.invars else jnp.int32


def _programs(parameters: dict[str, Any]) -> Iterator[ClosedJaxpr | Jaxpr]:
    """Yields the programs inside an operation: of a call, of a loop, of branches."""
    for value in parameters.values():
        for one in value if isinstance(value, tuple | list) else (value,):
            if isinstance(one, ClosedJaxpr | Jaxpr):
                yield one

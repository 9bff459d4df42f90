"""Row programs: what a layer does to its rows, apart from attention, as straight lines.

A program is data. A *reading* of a program is a function that goes through its steps with
one rule per operation: here are its value and its exact change. Rows are named. Operations
are affine maps, joined rows, activations of each entry, and norms, which divide a row by its
root mean square, centred first or not; the last two with the facts that bounds rest on.
"""

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.arguments import expect_number
from jax_models.model.pytree import register
from jax_models.run.blocks import map_long_axis
from jax_models.run.perturbation import perturb

Rows = Mapping[str, Array]


class Operation(abc.ABC):
    """A map of one row or several to a row. Finals are values."""

    # Whether it is affine in its rows: its change is then a function of theirs alone.
    linear: ClassVar[bool] = False
    # The degree in its rows of what it multiplies up, whose roundings count as often.
    degree: ClassVar[int] = 1

    @abc.abstractmethod
    def __call__(self, *rows: Array) -> Array:
        """Returns the row [..., d'] from its rows [..., d]."""

    @abc.abstractmethod
    def change(self, *rows: Array) -> Array:
        """Returns op(rows + changes) - op(rows) without subtracting two outputs.

        A linear operation takes the changes of its rows alone; another one the base row,
        broadcastable to its change, and the change.
        """


def linear(
    rows: Float[Array, "... read"],
    weight: Float[Array, "out read"],
    bias: Float[Array, "out"] | None = None,
) -> Float[Array, "... out"]:
    """Returns rows @ weight^T + bias at full precision [..., out].

    Args:
        rows: [..., in].
        weight: [out, in].
        bias: [out], none where it is None.
    """
    product = map_long_axis(
        lambda part: jnp.matmul(part, weight.T, precision=jax.lax.Precision.HIGHEST),
        rows,
    )
    return product if bias is None else product + bias


@register
@dataclasses.dataclass(frozen=True)
class Affine(Operation):
    """weight z + bias."""

    weight: Array  # [out, in]
    bias: Array | None = None  # [out]
    linear: ClassVar[bool] = True

    def __call__(self, *rows: Array) -> Array:
        """Returns weight z + bias [..., out]."""
        (row,) = rows
        return linear(row, self.weight, self.bias)

    def change(self, *rows: Array) -> Array:
        """Returns weight dz."""
        (row,) = rows
        return linear(row, self.weight)


@dataclasses.dataclass(frozen=True)
class Sum(Operation):
    """x + y."""

    linear: ClassVar[bool] = True

    def __call__(self, *rows: Array) -> Array:
        """Returns the sum of two rows."""
        one, two = rows
        return one + two

    change = __call__


@dataclasses.dataclass(frozen=True)
class Join(Operation):
    """(x, y)."""

    width: int  # of x
    linear: ClassVar[bool] = True

    def __call__(self, *rows: Array) -> Array:
        """Returns rows side by side."""
        return jnp.concatenate(rows, axis=-1)

    change = __call__


@dataclasses.dataclass(frozen=True)
class Product(Operation):
    """x y, entry by entry."""

    degree: ClassVar[int] = 2

    def __call__(self, *rows: Array) -> Array:
        """Returns the product of two rows."""
        one, two = rows
        return one * two

    def change(self, *rows: Array) -> Array:
        """Returns (x + dx)(y + dy) - x y = dx (y + dy) + x dy."""
        one, two, by_one, by_two = rows
        return by_one * (two + by_two) + one * by_two


class Activation(Operation):
    """A function of each entry. Finals state proved bounds."""

    # The largest |second derivative|, rounded up.
    curvature: ClassVar[float] = math.inf
    # How many roundings its evaluation adds to those of a product.
    roundings: ClassVar[int] = 0

    @abc.abstractmethod
    def slope(self, z: Array) -> Array:
        """Returns the derivative; for ReLU at 0 the slope 0."""

    @abc.abstractmethod
    def exact(self, z: Any, context: Any) -> Any:
        """Returns the value of a number of an mpmath context."""


class Steady(Activation):
    """One whose slopes are bounded: constants over all inputs rest on that."""

    # The largest slope s, rounded up, at least 1/2; no slope is below 1 - s.
    steepest: ClassVar[float]


class Norm(Operation):
    """c / sqrt(mean(c^2) + epsilon) * scale + bias, c = `centre`(z). Final ones: dataclasses.

    What is proved of norms rests on this alone: c is an orthogonal projection of z, and
    |c / sqrt(mean(c^2) + epsilon)| is at most the root of the width.
    """

    if TYPE_CHECKING:
        scale: Array  # [d]
        bias: Array  # [d]
        epsilon: float

        def __init__(self, *tensors: Any) -> None:
            """Tensors in the order of `tensors`, and the epsilon."""

    @classmethod
    def tensors(cls) -> tuple[str, ...]:
        """Names of the norm's tensors [d] in a file, the scale first."""
        fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        return tuple(x.name for x in fields if not x.metadata.get("static"))

    def __post_init__(self) -> None:
        epsilon = expect_number("layer_norm_epsilon", self.epsilon, 0)
        object.__setattr__(self, "epsilon", epsilon)

    @abc.abstractmethod
    def centre(self, rows: Any) -> Any:
        """Returns an orthogonal projection of rows [..., d], NumPy or JAX."""

    @property
    def largest(self) -> Float[Array, ""]:
        """max |scale|."""
        return jnp.abs(self.scale).max()

    def deviation(self, centred: Float[Array, "... width"]) -> Float[Array, "... 1"]:
        """Divisor of centred rows."""
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return jnp.sqrt(variance + self.epsilon)

    def __call__(self, *rows: Array) -> Float[Array, "... width"]:
        """Returns the normalised rows."""
        centred = self.centre(*rows)
        return centred / self.deviation(centred) * self.scale + self.bias

    def change(self, *rows: Array) -> Float[Array, "... width"]:
        """Returns norm(row + moved) - norm(row).

        With centred z, dz and s = sqrt(mean(z^2) + epsilon):
        dz / s' - z (s'^2 - s^2) / (s s' (s + s')), s'^2 - s^2 = mean(dz (2 z + dz)).
        """
        row, moved = rows
        z, dz = self.centre(row), self.centre(moved)
        old, new = self.deviation(z), self.deviation(z + dz)
        growth = (dz * (2 * z + dz)).mean(axis=-1, keepdims=True)
        return (dz / new - z * (growth / (old * new * (old + new)))) * self.scale


@dataclasses.dataclass(frozen=True)
class Step:
    """name = operation(inputs)."""

    name: str
    operation: Operation
    inputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """Steps in order; each reads rows that are given or came before."""

    steps: tuple[Step, ...]
    output: str

    @property
    def kept(self) -> tuple[str, ...]:
        """The rows that readings of changes ask of the base, the output left out.

        Those that operations read which are not linear, that norms write, and that are
        read more than once.
        """
        reads = [name for step in self.steps for name in step.inputs]
        found = [name for step in self.bent for name in step.inputs]
        found += [x.name for x in self.steps if isinstance(x.operation, Norm)]
        found += [name for name in reads if reads.count(name) > 1]
        return tuple(dict.fromkeys(x for x in found if x != self.output))

    def value(self, given: Rows) -> dict[str, Array]:
        """Returns all rows by their names."""
        return self.run(given, lambda step, *rows: perturb(step.operation(*rows)))

    def run(self, given: Mapping[str, Any], rule: Callable[..., Any]) -> dict[str, Any]:
        """Results by name of a rule (of a step and what it reads) on all rows."""
        rows = dict(given)
        for step in self.steps:
            read = (rows[name] for name in step.inputs)
            rows[step.name] = rule(step, *read)
        return rows

    def change(self, base: Rows, given: Rows) -> dict[str, Array]:
        """Returns the exact changes of all rows by their names.

        The base has the rows that nonlinear operations read, broadcastable to their changes;
        `given` the changes of first rows, and of others that are known.
        """
        changes = dict(given)
        for step in self.steps:
            if step.name in changes:
                continue
            rows = tuple(changes[name] for name in step.inputs)
            if not step.operation.linear:
                rows = (*(base[name] for name in step.inputs), *rows)
            changes[step.name] = perturb(step.operation.change(*rows))
        return changes

    @property
    def bent(self) -> tuple[Step, ...]:
        """The steps that are not linear."""
        return tuple(step for step in self.steps if not step.operation.linear)

    def reaches(self, source: str, past: str) -> bool:
        """Whether the output reads `source` by a way that does not lead through `past`."""
        reached = {source}
        for step in self.steps:
            if step.name != past and reached & set(step.inputs):
                reached.add(step.name)
        return self.output in reached

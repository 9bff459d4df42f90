"""Row programs: the operations of a layer on single rows, apart from attention.

A program is a sequence of steps without branches, each an operation on named rows. A
*reading* of a program is a function that goes through its steps with one rule per operation:
here are its value and its exact change. Operations are affine maps, sums, products and
concatenation, activations of each entry, and norms, which divide a row by its root mean
square, centred first or not. Activations and norms state constants that bounds rest on.
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
from jax_models.model.pytree import pytree
from jax_models.run.blocks import map_long_axis
from jax_models.run.perturbation import perturb

Rows = Mapping[str, Float[Array, "..."]]


class Operation(abc.ABC):
    """Row operation: a function of one or several rows to a row, a row program's step.

    Subclasses are frozen dataclasses.
    """

    # Whether the map is affine: its change then depends only on the rows' changes.
    linear: ClassVar[bool] = False
    # Degree of the map as a polynomial of its rows: rounding errors of rows count as often.
    degree: ClassVar[int] = 1

    @abc.abstractmethod
    def __call__(self, *rows: Float[Array, "..."]) -> Float[Array, "... out"]:
        """Returns the output row of the input rows."""

    @abc.abstractmethod
    def change(self, *rows: Float[Array, "..."]) -> Float[Array, "... out"]:
        """Returns op(rows + changes) - op(rows) without subtracting two outputs.

        The arguments of a linear operation are the changes of its rows; those of another
        one its rows, broadcastable to their changes, and then the changes.
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
    # In tiles where rows are many: `map_long_axis` has the reason.
    product = map_long_axis(
        lambda part: jnp.matmul(part, weight.T, precision=jax.lax.Precision.HIGHEST),
        rows,
    )
    return product if bias is None else product + bias


@pytree
class Affine(Operation):
    """Row operation weight z + bias, an affine map."""

    weight: Float[Array, "out read"]
    bias: Float[Array, "out"] | None = None
    linear: ClassVar[bool] = True

    def __call__(self, *rows: Float[Array, "... read"]) -> Float[Array, "... out"]:
        """Returns weight z + bias [..., out]."""
        (row,) = rows
        return linear(row, self.weight, self.bias)

    def change(self, *rows: Float[Array, "... read"]) -> Float[Array, "... out"]:
        """Returns weight dz."""
        (row,) = rows
        return linear(row, self.weight)


@dataclasses.dataclass(frozen=True)
class Sum(Operation):
    """Row operation x + y, as of a residual connection."""

    linear: ClassVar[bool] = True

    def __call__(self, *rows: Float[Array, "... width"]) -> Float[Array, "... width"]:
        """Returns the sum of two rows."""
        one, two = rows
        return one + two

    change = __call__


@dataclasses.dataclass(frozen=True)
class Join(Operation):
    """Row operation (x, y): two rows side by side."""

    width: int  # of x
    linear: ClassVar[bool] = True

    def __call__(self, *rows: Float[Array, "..."]) -> Float[Array, "... concatenated"]:
        """Returns rows side by side."""
        return jnp.concatenate(rows, axis=-1)

    change = __call__


@dataclasses.dataclass(frozen=True)
class Product(Operation):
    """Row operation x y, entry by entry, as of a gate."""

    degree: ClassVar[int] = 2

    def __call__(self, *rows: Float[Array, "... width"]) -> Float[Array, "... width"]:
        """Returns the product of two rows."""
        one, two = rows
        return one * two

    def change(self, *rows: Float[Array, "... width"]) -> Float[Array, "... width"]:
        """Returns (x + dx)(y + dy) - x y = dx (y + dy) + x dy."""
        one, two, by_one, by_two = rows
        # Not the difference of two products: it keeps the digits of small changes.
        return by_one * (two + by_two) + one * by_two


class Activation(Operation):
    """Row operation that is a function of each entry. Subclasses state proved bounds."""

    # The largest |second derivative|, rounded up.
    curvature: ClassVar[float] = math.inf
    # Number of roundings of an evaluation beyond those of a product.
    roundings: ClassVar[int] = 0

    @abc.abstractmethod
    def slope(self, z: Float[Array, "..."]) -> Float[Array, "..."]:
        """Returns the derivative; for ReLU at 0 the slope 0."""

    @abc.abstractmethod
    def exact(self, z: Any, context: Any) -> Any:
        """Returns the activation of z, a number of the mpmath `context`."""


class Steady(Activation):
    """Activation with bounded slopes, as bounds over all inputs need."""

    # The largest slope s, rounded up, at least 1/2; no slope is below 1 - s.
    steepest: ClassVar[float]


class Norm(Operation):
    """Norm c / sqrt(mean(c^2) + epsilon) * scale + bias of centred rows c = `centre`(z).

    Bounds use only that c is an orthogonal projection of z, and that the Euclidean norm of c
    / sqrt(mean(c^2) + epsilon) is at most the root of the width. Subclasses are dataclasses.
    """

    if TYPE_CHECKING:
        scale: Float[Array, "width"]
        bias: Float[Array, "width"]
        epsilon: float

        def __init__(self, *tensors: Any) -> None:
            """Takes the tensors in the order of the fields, and the epsilon."""

    def __post_init__(self) -> None:
        vars(self).update(epsilon=expect_number("layer_norm_epsilon", self.epsilon, 0))

    @abc.abstractmethod
    def centre(self, rows: Any) -> Any:
        """Returns an orthogonal projection of rows [..., d], NumPy or JAX."""

    @property
    def largest(self) -> Float[Array, ""]:
        """Largest |scale| of the norm, over its coordinates."""
        return jnp.abs(self.scale).max()

    def deviation(self, centred: Float[Array, "... width"]) -> Float[Array, "... 1"]:
        """Returns sqrt(mean(c^2) + epsilon) of centred rows c."""
        variance = (centred * centred).mean(axis=-1, keepdims=True)
        return jnp.sqrt(variance + self.epsilon)

    def __call__(self, *rows: Float[Array, "... width"]) -> Float[Array, "... width"]:
        """Returns the normalised rows."""
        centred = self.centre(*rows)
        return centred / self.deviation(centred) * self.scale + self.bias

    def change(self, *rows: Float[Array, "... width"]) -> Float[Array, "... width"]:
        """Returns norm(row + dz) - norm(row); `rows` are the row and its change dz."""
        row, moved = rows
        # `centre` is linear, so that the change of a centred row is the centred change.
        z, dz = self.centre(row), self.centre(moved)
        old, new = self.deviation(z), self.deviation(z + dz)
        # With centred z, dz and s = sqrt(mean(z^2) + epsilon) the change, before scale, is dz
        # / s' - z (s'^2 - s^2) / (s s' (s + s')), s'^2 - s^2 = mean(dz (2 z + dz)): squares
        # that may be nearly equal are not subtracted, nor are roots.
        growth = (dz * (2 * z + dz)).mean(axis=-1, keepdims=True)
        return (dz / new - z * (growth / (old * new * (old + new)))) * self.scale


@dataclasses.dataclass(frozen=True)
class Step:
    """Step of a row program: name = operation(inputs)."""

    name: str
    operation: Operation
    inputs: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Program:
    """Row program: steps in order; each reads given rows or those of earlier steps."""

    steps: tuple[Step, ...]
    output: str

    @property
    def kept(self) -> tuple[str, ...]:
        """Names of rows, but the output, whose old values the rules for changes need."""
        reads = [name for step in self.steps for name in step.inputs]
        # They are the rows that nonlinear operations read, that norms write, and that more
        # than one step reads.
        found = [name for step in self.bent for name in step.inputs]
        found += [x.name for x in self.steps if isinstance(x.operation, Norm)]
        found += [name for name in reads if reads.count(name) > 1]
        return tuple(dict.fromkeys(x for x in found if x != self.output))

    def value(self, given: Rows) -> dict[str, Float[Array, "..."]]:
        """Returns the values of all rows by name, from the given input rows."""
        # Every row is moved where it is formed, so that radii see the rounding of each step.
        return self.run(given, lambda step, *rows: perturb(step.operation(*rows)))

    def run(self, given: Mapping[str, Any], rule: Callable[..., Any]) -> dict[str, Any]:
        """Returns `given` and, by each step's name, rule(step, *its input rows)."""
        rows = dict(given)
        for step in self.steps:
            read = (rows[name] for name in step.inputs)
            rows[step.name] = rule(step, *read)
        return rows

    def change(self, base: Rows, given: Rows) -> dict[str, Float[Array, "..."]]:
        """Exact changes of all rows by name, from values `base` and changes `given`."""
        # `base` holds the rows that nonlinear operations read, broadcastable to their
        # changes; `given` holds the changes of the program's input rows, and of any rows
        # whose change is known already.
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
        """The program's nonlinear steps, in order."""
        return tuple(step for step in self.steps if not step.operation.linear)

    def reaches(self, source: str, past: str) -> bool:
        """Whether the output depends on row `source` other than through row `past`."""
        reached = {source}
        for step in self.steps:
            if step.name != past and reached & set(step.inputs):
                reached.add(step.name)
        return self.output in reached

"""Maps of final activations, a model's last rows: read-outs, heads, pooling."""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int

from jax_models.arguments import (
    choose_name,
    expect_integer,
    expect_kind,
    expect_number,
)
from jax_models.model.pytree import pytree, static
from jax_models.model.rows import Affine, Operation, RmsNorm, linear

KINDS = ("mean", "first", "last")


@pytree
class Pooling:
    """One vector for a sequence: the mean of its rows, the first or the last.

    As in sentence encoders; divided by its Euclidean norm if `normalised`.
    """

    kind: str = static(default="mean")
    normalised: bool = static(default=False)

    def __post_init__(self) -> None:
        """Raises `InputError` for an unknown kind and a `normalised` that is no boolean."""
        choose_name("pooling.kind", self.kind, KINDS)
        expect_kind("pooling.normalised", self.normalised, bool, "true or false")

    def rows(self, length: int) -> Int[np.ndarray, "rows"]:
        """Returns the positions in a sequence of `length` whose rows are pooled."""
        return np.arange(length)[
            {"mean": slice(None), "first": [0]}.get(self.kind, [-1])
        ]

    def __call__(self, rows: Float[Array, "rows width"]) -> Float[Array, "width"]:
        """Returns the pooled vector of rows at the positions `self.rows`."""
        joined = rows.mean(axis=0)
        return self._unit(joined)(joined) if self.normalised else joined

    def change(
        self, rows: Float[Array, "rows width"], changes: Float[Array, "... rows width"]
    ) -> Float[Array, "... width"]:
        """Returns the change of the pooled vector when its rows change by `changes`."""
        # The mean is linear: its change is the mean of the changes.
        joined, moved = rows.mean(axis=0), changes.mean(axis=-2)
        return self._unit(joined).change(joined, moved) if self.normalised else moved

    def _unit(self, row: Float[Array, "width"]) -> RmsNorm:
        """Returns the operation that divides a row by its Euclidean norm."""
        # z / sqrt(mean(z^2)) / sqrt(d) = z / |z|.
        ones = jnp.ones_like(row)
        return RmsNorm(ones / row.shape[0] ** 0.5, 0.0)


@pytree
class Readout:
    """Linear read-out of final activations: logits = weight y + bias."""

    weight: Float[Array, "classes width"]
    bias: Float[Array, "classes"] | None = None

    def __call__(self, rows: Float[Array, "... width"]) -> Float[Array, "... classes"]:
        """Returns the logits of final activations `rows`."""
        return linear(rows, self.weight, self.bias)

    def operations(
        self, embedding: Float[Array, "symbols d_embedding"]
    ) -> tuple[Operation, ...]:
        """Operations on a final activation, in order."""
        del embedding
        return (Affine(self.weight, self.bias),)


@pytree
class Head:
    """Head of a model: operations on a final activation; the embedding last, if `tied`.

    The head of a masked language model, for instance, is a map, an activation, a norm and
    the embedding; a pooler is a map and tanh.
    """

    steps: tuple[Operation, ...] = ()
    bias: Float[Array, "symbols"] | None = None  # added to embedding z, if tied
    tied: bool = static(default=False)

    def operations(
        self, embedding: Float[Array, "symbols d_embedding"]
    ) -> tuple[Operation, ...]:
        """Operations on a final activation, in order."""
        return (*self.steps, Affine(embedding, self.bias)) if self.tied else self.steps


@dataclasses.dataclass(frozen=True)
class Accept:
    """Rule of acceptance: logit `class_` at the position read is at least the threshold."""

    class_: int
    threshold: float

    def __post_init__(self) -> None:
        vars(self).update(
            class_=expect_integer("accept.class", self.class_, 0),
            threshold=expect_number("accept.threshold", self.threshold),
        )

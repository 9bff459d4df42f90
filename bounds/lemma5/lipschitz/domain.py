"""What may vary in a search: rows in the embedding ball, or relaxed tokens.

The tokens' own rows lie in the mixtures of tokens, and these in the ball of radius
max |embedding + position encoding|, on which the closed forms hold. A search may thus go
no further than the ball: beyond it an estimate could exceed a bound without refuting it.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from jax_models import Transformer
from jax_models.model.pytree import register
from jax_models.model.transformer import encode_positions
from jax_models.run.differentiable import embed_mixture


@register
@dataclasses.dataclass(frozen=True)
class Ball:
    """Every row anywhere within the radius; a position moves in every direction."""

    name: ClassVar[str] = "ball"
    radius: Array  # []
    basis: Array  # [d, d], the identity

    @property
    def step(self) -> Array:
        """Learning rate of each coordinate: a tenth of a row at the radius."""
        return 0.1 * self.radius / self.basis.shape[0] ** 0.5

    def rows(self, variable: Array) -> Array:
        """Returns the rows y^(0) [n, d] of a point."""
        return variable

    def tangent(self, slope: Array) -> Array:
        """Returns the part of a gradient that stays in the domain's affine hull."""
        return slope

    def project(self, variable: Array) -> Array:
        """Returns the nearest point of the domain."""
        return jax.vmap(
            lambda row: optax.projections.projection_l2_ball(row, self.radius)
        )(variable)


@register
@dataclasses.dataclass(frozen=True)
class Simplex:
    """Every row a mixture of tokens; a position moves between mixtures."""

    name: ClassVar[str] = "simplex"
    embedding: Array  # [S, d] of the symbols that may stand there
    positions: Array  # [n, d]
    basis: Array  # [d, r], orthonormal, spans the differences of embeddings

    @property
    def step(self) -> Array:
        """Learning rate of each weight of a mixture."""
        return jnp.full((), 0.1, self.basis.dtype)

    def rows(self, variable: Array) -> Array:
        """Returns the rows y^(0) [n, d] of mixtures [n, S]."""
        return embed_mixture(variable, self.embedding, self.positions)

    def tangent(self, slope: Array) -> Array:
        """Returns the part of a gradient that stays in the domain's affine hull.

        Adam gives all coordinates steps of one size, and a step that all weights share
        is undone by the projection.
        """
        return slope - slope.mean(axis=1, keepdims=True)

    def project(self, variable: Array) -> Array:
        """Returns the nearest mixtures."""
        # Optax divides floats by integers.
        with jax.numpy_dtype_promotion("standard"):
            return jax.vmap(optax.projections.projection_simplex)(variable)


Domain = Ball | Simplex


def free_symbols(model: Transformer) -> np.ndarray:
    """Returns the symbols that may be substituted [S]."""
    listed = model.substitutable
    return np.arange(model.vocab_size) if listed is None else np.array(sorted(listed))


def ball_radius(model: Transformer, length: int) -> float:
    """Returns max |embedding[s] + position[j]| over symbols s and positions j < n."""
    positions = np.asarray(encode_positions(model, length), np.float64)
    embedding = np.asarray(model.embedding, np.float64)
    return max(float(np.linalg.norm(positions + e, axis=1).max()) for e in embedding)


def make_ball(model: Transformer, length: int) -> Ball:
    """Returns the embedding ball of a model at one length."""
    radius = ball_radius(model, length)
    return Ball(
        jnp.asarray(radius, model.dtype), jnp.eye(model.width, dtype=model.dtype)
    )


def make_simplex(model: Transformer, length: int) -> Simplex | None:
    """Returns the mixtures of a model's free symbols; None where they are all one row."""
    embedding = np.asarray(model.embedding)[free_symbols(model)]
    differences = embedding[1:] - embedding[:1]
    if not differences.any():
        return None
    _, sizes, directions = np.linalg.svd(differences, full_matrices=False)
    # What rounding leaves of a dependent difference is no direction to move in.
    noise = max(differences.shape) * np.finfo(embedding.dtype).eps * sizes[0]
    basis = directions[sizes > noise].T
    return Simplex(
        jnp.asarray(embedding), encode_positions(model, length), jnp.asarray(basis)
    )

"""The searches at one length, each over several inputs and restarts."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.problem import Target
from bounds.lipschitz.ascent import Point, ascend, ascend_tokens
from bounds.lipschitz.domain import Ball, Domain, free_symbols
from bounds.lipschitz.jacobian import block_norms
from bounds.lipschitz.result import Estimate
from bounds.lipschitz.substitution import (
    Substitution,
    all_positions,
    free_rows,
    largest_ratio,
)
from jax_models import InputError, Transformer
from jax_models.arguments import expect_integer
from jax_models.transformer import embed

HIGHEST = jax.lax.Precision.HIGHEST

# Random points this many deviations out reach the border of every domain.
FAR = 10.0


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is searched.

    Attributes:
        restarts: Starting points of each ascent; 0 leaves the ascents out.
        steps: Steps of a gradient ascent.
        rounds: Rounds of a discrete ascent over tokens, at most.
    """

    restarts: int = 3
    steps: int = 100
    rounds: int = 8

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in (("restarts", 0), ("steps", 1), ("rounds", 1)):
            expect_integer(name, getattr(self, name), least)


@dataclasses.dataclass(frozen=True)
class Look:
    """One input, and what was found on it before any ascent."""

    input: int
    tokens: np.ndarray  # [n]
    free: np.ndarray  # [n] bool: holds a token that may be substituted
    norms: np.ndarray  # [n] local norms, NaN where the position may not change
    directions: np.ndarray  # [n, d]
    iterations: int
    best: Substitution

    @property
    def position(self) -> int:
        """The position of largest local norm."""
        return int(np.nanargmax(self.norms))

    @property
    def norm(self) -> float:
        """The largest local norm."""
        return float(np.nanmax(self.norms))


@dataclasses.dataclass(frozen=True)
class Searches:
    """The searches at one length: each returns its best as an `Estimate`.

    Attributes:
        model: A softmax transformer, settled at the length.
        query: Position of the output, from 0.
        target: "activation" or "logits".
        include_query: Whether the query's own embedding may change too.
        effort: How much is searched.
        seed: Seed of all that is random.
    """

    model: Transformer
    query: int
    target: Target
    include_query: bool
    effort: Effort
    seed: int

    @property
    def _how(self) -> dict[str, Any]:
        return {"query": self.query, "target": self.target}

    def look(self, index: int, tokens: np.ndarray, slopes: bool) -> Look:
        """Returns the local norms and the exact substitutions on one input.

        Args:
            index: Which input it is.
            tokens: The input [n].
            slopes: Whether local norms are wanted; without, they are all taken as 1
                where the choice of substitutions does not need them.

        Raises:
            InputError: No position of the input may change.
        """
        free = free_rows(self.model, tokens)
        movable = free.copy()
        if not self.include_query:
            movable[self.query] = False
        if not movable.any():
            raise InputError(
                f"input {index} has no position that may change: only the symbols "
                f"{free_symbols(self.model).tolist()} are substituted, and not at the "
                "query"
            )
        rows = embed(self.model, jnp.asarray(tokens, jnp.int32))
        if slopes or not all_positions(self.model, len(tokens)):
            norms, directions, iterations = block_norms(
                self.model, rows, seed=self.seed, **self._how
            )
        else:
            norms, directions, iterations = np.ones(len(tokens)), np.asarray(rows), 0
        norms[~movable] = np.nan
        best = self._exact(tokens, norms)
        return Look(index, tokens, free, norms, directions, iterations, best)

    def _exact(self, tokens: np.ndarray, norms: np.ndarray) -> Substitution:
        include = self.include_query
        return largest_ratio(
            self.model, tokens, norms, include_query=include, **self._how
        )

    def substitution(self, looks: list[Look]) -> Estimate:
        """Returns the largest exact ratio over all inputs."""
        top = max(looks, key=lambda look: look.best.ratio)
        return Estimate(
            top.best.ratio,
            "substitution",
            self.seed,
            sum(look.best.count for look in looks),
            top.best.position,
            top.best.symbol,
            top.input,
        )

    def local(self, looks: list[Look]) -> Estimate:
        """Returns the largest local norm over all inputs."""
        top = max(looks, key=lambda look: look.norm)
        count = sum(look.iterations for look in looks)
        return Estimate(
            top.norm, "local", self.seed, count, top.position, input=top.input
        )

    def relaxed(self, looks: list[Look], domain: Domain) -> Estimate:
        """Returns the largest local norm that gradient ascent met in a domain."""
        order = sorted(looks, key=lambda look: -look.norm)
        best = Estimate(0.0, domain.name, self.seed, 0)
        for restart in range(self.effort.restarts):
            look = order[restart % len(order)]
            start = self._start(look, domain, restart)
            value, _ = ascend(
                self.model, domain, start, steps=self.effort.steps, **self._how
            )
            if float(value) > best.value:
                at = {"position": look.position, "input": look.input}
                best = dataclasses.replace(best, value=float(value), **at)
        made = self.effort.restarts * self.effort.steps
        return dataclasses.replace(best, iterations=made)

    def _start(self, look: Look, domain: Domain, restart: int) -> Point:
        """Returns where a restart begins: the first at tokens, the others off them."""
        dtype = self.model.dtype
        rows = embed(self.model, jnp.asarray(look.tokens, jnp.int32))
        vector = jnp.asarray(look.directions[look.position], dtype)
        direction = jnp.matmul(vector, domain.basis, precision=HIGHEST)
        variable = rows
        if not isinstance(domain, Ball):
            symbols = free_symbols(self.model)
            variable = jnp.asarray(look.tokens[:, None] == symbols, dtype)
        if restart:
            # Half way to a random point on the border: far from the tokens and from
            # other restarts, and inside, where the ascent can turn every way.
            random = np.random.default_rng([self.seed, restart])
            noise = FAR * random.standard_normal(variable.shape)
            border = domain.project(jnp.asarray(noise, dtype))
            variable = (variable + border) / 2
        moves = (direction != 0).any()
        return Point(
            domain.project(variable),
            jnp.where(moves, direction, jnp.ones_like(direction)),
            jnp.asarray(look.position, jnp.int32),
            rows,
            jnp.asarray(look.free),
        )

    def tokens(self, looks: list[Look]) -> tuple[Estimate, float]:
        """Returns the largest exact ratio after discrete ascent, and any influence."""
        order = sorted(looks, key=lambda look: -look.best.ratio)
        best = Estimate(0.0, "tokens", self.seed, 0)
        made, influence = 0, 0.0
        for look in order[: self.effort.restarts]:
            if look.best.position is None or look.best.symbol is None:
                continue
            found, _, rounds = ascend_tokens(
                self.model,
                jnp.asarray(look.tokens, jnp.int32),
                jnp.asarray(look.best.position, jnp.int32),
                jnp.asarray(look.best.symbol, jnp.int32),
                jnp.asarray(look.free),
                jnp.asarray(free_symbols(self.model), jnp.int32),
                rounds=self.effort.rounds,
                **self._how,
            )
            # The ascent subtracts two outputs; what is reported is the exact change.
            exact = self._exact(np.asarray(found), look.norms)
            made += int(rounds)
            influence = max(influence, exact.influence)
            if exact.ratio > best.value:
                best = Estimate(
                    exact.ratio,
                    "tokens",
                    self.seed,
                    0,
                    exact.position,
                    exact.symbol,
                    look.input,
                )
        return dataclasses.replace(best, iterations=made), influence

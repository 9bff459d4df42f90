"""Ascent over inputs: an estimate from below of the supremum of the influence.

For lengths with too many inputs to evaluate; an influence is the norm of the change of
the watched output when one symbol is replaced. From a random input: the largest of its
influences names a substitution; other tokens are then changed so that this substitution
has more influence, one token or a stretch of tokens at a time, and the ascent continues
from the best of these inputs, or where none is better from an input near the best.
Every second ascent first climbs over mixtures of tokens, distributions over the symbols
at each position. Where an input is few classes of equal rows (`Universe`) it is evaluated
as these, each changed input with all its substitutions. A `Found` is the largest
influence met, with its input and substitution.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from bounds.all_inputs.universe import AllInputs, Found, Universe, largest_on
from bounds.influence.compute import compute_influence
from bounds.influence.methods.exhaustive import batch_size
from bounds.influence.targets.change import read_target
from bounds.numbers.norms import scaled_norm
from jax_models import Transformer, forward
from jax_models.model.transformer import embedded, encode_positions
from jax_models.run.differentiable import embed_mixture, forward_embeddings

Tokens: TypeAlias = Int[np.ndarray, "tokens"]
Index: TypeAlias = Int[Array, ""]

RATE = 0.1  # of the weights of a mixture
# The start leans towards the tokens: a uniform mixture has forgotten them.
LEAN = 0.5
RESTARTS, ROUNDS, STEPS = 8, 24, 60
# Changed inputs that are compared in a round; with few positions all single changes are.
CANDIDATES = 64
# Where every position costs a forward pass, so many of them are looked at on an input.
EXHAUST_TO, POSITIONS = 256, 32


def log_norm(change: Float[Array, "..."]) -> Float[Array, ""]:
    """ln of the Euclidean norm of a change, -inf for 0, of finite slope everywhere."""
    squares = (change * change).sum()
    # The inner `where` keeps the slope of the logarithm finite where the change is 0.
    some = squares > 0
    return jnp.where(some, 0.5 * jnp.log(jnp.where(some, squares, 1)), -jnp.inf)


def ascend(
    gain: Callable[[Any], Float[Array, ""]],
    advance: Callable[[Any, Any, Any], tuple[Any, Any]],
    point: Any,
    moments: Any,
    steps: int,
) -> tuple[Float[Array, ""], Any]:
    """Largest gain on a gradient ascent from `point`, and the point that attains it."""

    # `advance` makes the next point and moments of a point, the slope there and moments.
    def step(state: tuple[Any, ...], _: None) -> tuple[tuple[Any, ...], None]:
        point, moments, best = state
        value, slope = jax.value_and_grad(gain)(point)
        # Steps of Adam do not rise at each, so the best point on the way is kept: the first
        # of equals and never a NaN.
        keep = functools.partial(jnp.where, value > best[0])
        best = jax.tree.map(keep, (value, point), best)
        # Where the output does not move at all there is no slope to follow.
        number = functools.partial(jnp.nan_to_num, posinf=0.0, neginf=0.0)
        # Optax counts its steps in int32 and computes with them and floats.
        with jax.numpy_dtype_promotion("standard"):
            after = advance(point, jax.tree.map(number, slope), moments)
        # Its rates are float64 where that is enabled, whatever the point is.
        like = lambda new, old: new.astype(old.dtype)
        return (*jax.tree.map(like, after, (point, moments)), best), None

    nothing = jnp.full((), -jnp.inf, jax.tree.leaves(point)[0].dtype)
    first = (point, moments, (nothing, point))
    # One more step, of which only the gain counts: that of the last point.
    (*_, best), _ = jax.lax.scan(step, first, None, length=steps + 1)
    return best


@functools.partial(jax.jit, static_argnames=("query", "target", "steps"))
def ascend_mixture(
    model: Transformer,
    tokens: Int[Array, "tokens"],
    symbols: Int[Array, "symbols"],
    free: Bool[Array, "tokens"],
    position: Index,
    symbol: Index,
    *,
    query: int,
    target: str,
    steps: int,
) -> Float[Array, "tokens symbols"]:
    """Distribution over symbols at each position, where a substitution has most influence."""
    # Every free position holds a distribution over the symbols, and its row is the mixture of
    # their rows; other positions hold their tokens. The ascent starts near `tokens`.
    optimiser = optax.adam(optax.cosine_decay_schedule(RATE, steps))
    fixed = embedded(model, tokens)
    encodings = encode_positions(model, tokens.shape[0])
    move = model.embedding[symbol] - model.embedding[tokens[position]]
    at = jnp.asarray([query], jnp.int32)

    def run(rows: Float[Array, "tokens width"]) -> Float[Array, "width_or_classes"]:
        (output,) = forward_embeddings(model, rows, at)
        return read_target(model, output, target)

    def gain(mixture: Float[Array, "tokens symbols"]) -> Float[Array, ""]:
        mixed = embed_mixture(mixture, model.embedding[symbols], encodings)
        rows = jnp.where(free[:, None], mixed, fixed)
        return log_norm(run(rows.at[position].add(move)) - run(rows))

    def advance(mixture: Any, slope: Any, moments: Any) -> tuple[Any, Any]:
        # A step that all weights share is undone by the projection.
        slope = slope - slope.mean(axis=1, keepdims=True)
        update, moments = optimiser.update(-slope, moments, mixture)
        return jax.vmap(optax.projections.projection_simplex)(mixture + update), moments

    one_hot = (tokens[:, None] == symbols).astype(model.dtype)
    start = LEAN * one_hot + (1 - LEAN) / symbols.shape[0]
    return ascend(gain, advance, start, optimiser.init(start), steps)[1]


@functools.partial(jax.jit, static_argnames=("query", "target", "batch"))
def changes_on(
    model: Transformer,
    inputs: Int[Array, "inputs tokens"],
    position: Index,
    symbol: Index,
    *,
    query: int,
    target: str,
    batch: int,
) -> Float[Array, "inputs"]:
    """Norms of the output's change by one substitution, on each of many inputs."""
    at = jnp.asarray([query], jnp.int32)

    def run(tokens: Int[Array, "tokens"]) -> Float[Array, "width_or_classes"]:
        (output,), _ = forward(model, tokens, at)
        return read_target(model, output, target)

    def one(tokens: Int[Array, "tokens"]) -> Float[Array, ""]:
        # Subtracted outputs suffice to compare inputs; the influence that is returned is
        # exact.
        return scaled_norm(run(tokens.at[position].set(symbol)) - run(tokens))

    return jax.lax.map(one, inputs, batch_size=batch)


@dataclasses.dataclass(frozen=True)
class AscentPlan:
    """Search for a large influence; block b is an ascent from its own random input."""

    universe: AllInputs
    seed: int
    restarts: int = RESTARTS
    rounds: int = ROUNDS
    why: str = ""  # why it is not gone through exactly
    name: str = "search"
    exact: bool = False

    @property
    def num_blocks(self) -> int:
        """Number of ascents; 0 where nothing can be substituted."""
        others = self.universe.length > 1 and len(self.universe.symbols) > 1
        return self.restarts if others else 0

    @property
    def description(self) -> str:
        """Description of the search in one line."""
        why = f", since {self.why}" if self.why else ""
        return f"a search by ascent from {self.num_blocks} inputs{why}"

    def run(self, block: int) -> Found:
        """Largest influence met on ascent number `block`, with its input and substitution."""
        rng = np.random.default_rng([self.seed, block])
        tokens = self._draw(rng)
        best = self._exact(rng, tokens)
        if block % 2 and not isinstance(self.universe, Universe):
            tokens = self._relax(tokens, best)
            best = best.merge(self._exact(rng, tokens, best))
        here = best
        for _ in range(self.rounds):
            found = self._exact(rng, self._improve(rng, here), here)
            best = best.merge(found)
            if found.max > here.max:
                here = found
            elif isinstance(self.universe, Universe):
                return best  # of many changes, each with all its substitutions, none is
            else:  # a peak: on from an input near the best one
                around = self._changed(rng, best.tokens)
                here = self._exact(rng, around[rng.integers(len(around))])
                best = best.merge(here)
        return best

    def _draw(self, rng: np.random.Generator) -> Tokens:
        """A random input, whose symbols have random frequencies."""
        universe = self.universe
        shares = rng.dirichlet(np.full(len(universe.symbols), 0.5))
        tokens = rng.choice(universe.symbols, universe.length, p=shares)
        tokens[universe.query] = rng.choice(universe.query_symbols)
        return tokens.astype(np.int32)

    def _exact(
        self, rng: np.random.Generator, tokens: Tokens, near: Found | None = None
    ) -> Found:
        """Largest influence on an input, exact; if that is slow, at some positions alone."""
        universe, positions = self.universe, None
        if isinstance(universe, Universe):
            return largest_on(universe, [tokens])
        deep = len(universe.model.layers) > 2
        if deep and universe.length > EXHAUST_TO:
            drawn = rng.choice(universe.length, POSITIONS, replace=False)
            known = [] if near is None else [near.position]
            positions = sorted({*drawn.tolist(), *known})
        found = compute_influence(
            universe.model,
            tokens,
            **universe.watched,
            positions=positions,
            ties="ignore",  # judged when the block is done
            keep="max",
        )
        assert found.position is not None
        assert found.symbol is not None
        ends, made = (found.max, found.max_lower, found.max_upper), found.substitutions
        return Found(*ends, tokens, found.position, found.symbol, made, found.ties)

    def _relax(self, tokens: Tokens, at: Found) -> Tokens:
        """Likeliest tokens of the best mixtures on an ascent, for `at`'s substitution."""
        universe = self.universe
        free = np.ones(universe.length, bool)
        free[[universe.query, at.position]] = False
        substitution = np.int32(at.position), np.int32(at.symbol)
        given = tokens, universe.symbols.astype(np.int32), free, *substitution
        given = universe.model, *map(jnp.asarray, given)
        mixture = ascend_mixture(*given, **universe.watched, steps=STEPS)
        chosen = universe.symbols[np.asarray(mixture).argmax(axis=1)]
        return np.where(free, chosen, tokens).astype(np.int32)

    def _improve(self, rng: np.random.Generator, at: Found) -> Tokens:
        """Changed copy of `at`'s input where its substitution has most influence."""
        universe, model = self.universe, self.universe.model
        inputs = self._changed(rng, at.tokens)
        if isinstance(universe, Universe):
            return largest_on(universe, inputs).tokens
        batch = min(len(inputs), batch_size(model, universe.length))
        given = inputs, np.int32(at.position), np.int32(at.symbol)
        given = model, *map(jnp.asarray, given)
        sizes = changes_on(*given, **universe.watched, batch=batch)
        return inputs[int(np.argmax(np.nan_to_num(np.asarray(sizes))))]

    def _changed(
        self, rng: np.random.Generator, tokens: Tokens
    ) -> Int[np.ndarray, "inputs tokens"]:
        """Copies of an input with one token changed, or a stretch set to one symbol."""
        universe, count = self.universe, CANDIDATES
        changed = np.repeat(tokens[None], 2 * count, axis=0)
        others, symbols = universe.others, universe.symbols
        singles = len(others) * len(symbols)
        drawn = np.arange(count) % singles
        if singles > count:
            drawn = rng.integers(singles, size=count)
        for row, number in enumerate(drawn.tolist()):
            place, which = divmod(number, len(symbols))
            changed[row, others[place]] = symbols[which]
        for row in range(count, 2 * count):
            # Lengths of stretches spread evenly over their logarithm.
            span = int(len(others) ** rng.random())
            start = rng.integers(len(others))
            changed[row, others[start : start + span]] = rng.choice(symbols)
            if len(universe.query_symbols) > 1 and not rng.integers(4):
                changed[row, universe.query] = rng.choice(universe.query_symbols)
        return changed

"""Estimate of a Lipschitz constant at one length: three searches over several inputs.

It is that of a model's output in the embedding of one position. y_q is the output at the
query, the row that is read (its target: activation or logits), J_i its Jacobian in the
embedding row y_i^(0) of position i, and the local norm |J_i| at one input. One reverse pass
per output coordinate gives that row of all J_i at once, d passes and not n; then all norms
are power iterations together. Of an output wider than `MAX_ROWS` only as many random
orthonormal directions Q are taken, |Q J_i| <= |J_i|, and the largest are iterated anew with
jvp and vjp of the model itself. A substitution replaces one token, its influence is the norm
of the output's change; an ascent maximises the local norm over embedding rows y^(0) in a
ball. Estimates are ratios that were observed. The constant is at least as large, up to
rounding, and may be larger: an estimate is neither a `Bound` nor a `Claim`.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from bounds.all_inputs.ascent import ascend, log_norm
from bounds.all_inputs.universe import check_watched
from bounds.curves.inputs import InputSource, check_changeable, open_inputs
from bounds.influence import compute_influence
from bounds.influence.targets.base import PlainTarget
from bounds.influence.targets.change import read_target
from bounds.lemma5.constants.model_constants import refuse_hard
from bounds.numbers.norms import contract, scaled_norm
from bounds.readings import of_one_text, unsupported_dropout
from jax_models import InputError, Transformer
from jax_models.arguments import expect_integer
from jax_models.model.reweight import at_length
from jax_models.model.transformer import embedded, encode_positions
from jax_models.run.device_memory import PYTHON_STEP, require_operations
from jax_models.run.differentiable import forward_embeddings
from jax_models.run.evaluate import check_tokens

Rows: TypeAlias = Float[Array, "tokens width"]
Tokens: TypeAlias = Int[np.ndarray, "tokens"]
Scalar: TypeAlias = Float[Array, ""]
Row: TypeAlias = Float[Array, "width"]
Moves: TypeAlias = Float[Array, "positions width"]
Vectors: TypeAlias = Float[Array, "maps _"]
Count: TypeAlias = Int[Array, ""]
State: TypeAlias = tuple[Shaped[Array, "..."], ...]

# Relative growth of a norm in one iteration below which it counts as settled.
SETTLED = 1e-10
ITERATIONS = 200
MAX_ROWS = 64
MAX_ELEMENTS = 2**26  # of all blocks together, half a gigabyte in float64
CANDIDATES = 8
PASSES_AT_ONCE = 16


def power_iteration(
    product: Callable[[Array], Array],
    transpose: Callable[[Array], Array],
    start: Float[Array, "maps width"],
    iterations: int,
) -> tuple[Float[Array, "maps"], Float[Array, "maps width"], Count]:
    """Lower estimates of the norms of linear maps A_b, by v <- A^T A v / |.|."""

    # Every value is |A_b v_b| of a unit vector v_b, hence at most the operator norm up
    # to rounding, and grows with the iterations, which stop when none grows any more.
    # `product` maps the vectors to images, `transpose` images back. The vectors and the
    # number of iterations are returned, too.
    def normalise(vectors: Vectors, otherwise: Vectors) -> Vectors:
        norm = scaled_norm(vectors)[:, None]
        return jnp.where(norm > 0, vectors / jnp.where(norm > 0, norm, 1), otherwise)

    def step(state: State) -> State:
        count, vectors, norms, _ = state
        image = product(vectors)
        new = scaled_norm(image)
        # The image as a unit vector, so that its square cannot leave the float range.
        moved = normalise(transpose(normalise(image, image)), vectors)
        return count + 1, moved, new, (new > norms * (1 + SETTLED)).any()

    unsettled = lambda state: state[3] & (state[0] < iterations)
    unit = normalise(start, jnp.ones_like(start) / start.shape[-1] ** 0.5)
    # Below every norm, so that the first step counts as growth and the loop goes on.
    below = -jnp.ones(start.shape[:-1], start.dtype)
    first = (jnp.zeros((), jnp.int32), unit, below, jnp.ones((), bool))
    count, vectors, _, _ = jax.lax.while_loop(unsettled, step, first)
    return scaled_norm(product(vectors)), vectors, count


def output_at(
    model: Transformer, rows: Rows, query: int, target: str
) -> Float[Array, "outputs"]:
    """Target (activation or logits) at the query, a function of all embedding rows y^(0)."""
    (y,) = forward_embeddings(model, rows, jnp.asarray([query], jnp.int32))
    return read_target(model, y, target)


@functools.partial(jax.jit, static_argnames=("query", "target"))
def _sketched_norms(
    model: Transformer,
    rows: Rows,
    directions: Float[Array, "directions outputs"],
    start: Rows,
    *,
    query: int,
    target: str,
) -> tuple[Float[Array, "tokens"], Rows, Count]:
    """Lower estimates of |Q J_i|, Q `directions`; vectors that attain them; iterations."""
    _, pull = jax.vjp(lambda z: output_at(model, z, query, target), rows)
    blocks = jax.lax.map(
        lambda direction: pull(direction)[0], directions, batch_size=PASSES_AT_ONCE
    )  # [k, n, d]
    return power_iteration(
        lambda v: contract("knd,nd->nk", blocks, v),
        lambda u: contract("knd,nk->nd", blocks, u),
        start,
        ITERATIONS,
    )


@functools.partial(jax.jit, static_argnames=("query", "target"))
def norms_at(
    model: Transformer,
    rows: Rows,
    positions: Int[Array, "positions"],
    start: Moves,
    *,
    query: int,
    target: str,
) -> tuple[Float[Array, "positions"], Moves, Count]:
    """Lower estimates of |J_i| at `positions`; vectors that attain them; iterations."""
    function = lambda z: output_at(model, z, query, target)
    _, pull = jax.vjp(function, rows)

    def product(vectors: Moves) -> Float[Array, "positions outputs"]:
        def one(at: Count, vector: Float[Array, "width"]) -> Float[Array, "outputs"]:
            tangent = jnp.zeros_like(rows).at[at].set(vector)
            return jax.jvp(function, (rows,), (tangent,))[1]

        return jax.vmap(one)(positions, vectors)

    def transpose(images: Float[Array, "positions outputs"]) -> Moves:
        return jax.vmap(lambda at, image: pull(image)[0][at])(positions, images)

    return power_iteration(product, transpose, start, ITERATIONS)


def block_norms(
    model: Transformer, rows: Rows, *, query: int, target: str, seed: int
) -> tuple[Float[np.ndarray, "tokens"], Float[np.ndarray, "tokens width"], int]:
    """Lower estimates of all |J_i| at `rows`; unit vectors that attain them; iterations."""
    how: Any = {"query": query, "target": target}
    width = model.width if target == "activation" else model.classes
    assert width is not None
    # Orthonormal directions of the output: all, or a random subspace of a wide one.
    most = max(CANDIDATES, MAX_ELEMENTS // (rows.shape[0] * model.width))
    directions, count = np.eye(width), min(width, MAX_ROWS, most)
    if count < width:
        gaussian = np.random.default_rng(seed).standard_normal((width, count))
        directions = np.linalg.qr(gaussian)[0].T
    start = np.random.default_rng(seed).standard_normal(rows.shape)
    found = _sketched_norms(
        model, rows, *(jnp.asarray(x, rows.dtype) for x in (directions, start)), **how
    )
    norms, vectors, count = (np.array(x) for x in found)
    if len(directions) == width:
        return norms, vectors, int(count)
    at = np.argsort(-norms, kind="stable")[:CANDIDATES]
    again = norms_at(model, rows, jnp.asarray(at), jnp.asarray(vectors[at]), **how)
    # From a vector that a part of the output gave, the whole output gives no less.
    norms[at], vectors[at] = np.asarray(again[0]), np.asarray(again[1])
    return norms, vectors, int(count) + int(again[2])


@dataclasses.dataclass(frozen=True)
class Estimate:
    """The largest ratio of output change to embedding change that one search met.

    Estimates have no order; compare `value` where that is meant.

    Attributes:
        value: The ratio, in units of the output per unit of the embedding.
        method: The search: "substitution", "local" or "ball".
        seed: Seed of the inputs and of everything random in the search.
        iterations: Substitutions, power iterations or ascent steps that were made,
            over all inputs and restarts.
        position: Position whose embedding changes, from 0; None where none may.
        symbol: The substitute, where the change is a substitution.
        input: Index, from 0, of the input it was met on, or where the ascent began.
    """

    value: float
    method: str
    seed: int
    iterations: int
    position: int | None = None
    symbol: int | None = None
    input: int | None = None

    def __repr__(self) -> str:
        """One line that says it is an estimate."""
        return (
            f"{type(self).__name__}({self.value:.6g} [estimated, a lower estimate], "
            f"method={self.method!r}, position={self.position}, seed={self.seed}, "
            f"iterations={self.iterations})"
        )


@dataclasses.dataclass(frozen=True, repr=False)
class LipschitzEstimate(Estimate):
    """The largest ratio over all searches at one length: an estimate of K_n from below.

    K_n is the Lipschitz constant of the output at the query in the embedding of one
    other position, with every row y^(0) in the ball of the largest embedding.

    Attributes:
        length: n.
        query: Position of the output, from 0.
        target: "activation" or "logits".
        radius: Radius of the embedding ball, max |embedding + position encoding|.
        influence: The largest influence of a substitution that was met, less rounding.
        searches: The best estimate of each search that was made.
    """

    _: dataclasses.KW_ONLY
    length: int
    query: int
    target: PlainTarget
    radius: float
    influence: float
    searches: tuple[Estimate, ...]

    @property
    def scaled(self) -> float:
        """n K_n: constant in n where the influence falls like 1/n."""
        return self.length * self.value

    def row(self) -> dict[str, Any]:
        """The numbers as a row of a table, one column per search."""
        first = {"n": self.length, "estimate": self.value, "scaled": self.scaled}
        names = ("method", "position", "seed", "iterations", "radius", "influence")
        by_search = {search.method: search.value for search in self.searches}
        return {**first, **{x: getattr(self, x) for x in names}, **by_search}


# Of deeper models than this, at longer lengths, only so many positions are substituted,
# those of largest local norm: each costs a forward pass.
INCREMENTAL_LAYERS, EXHAUST_TO, POSITIONS = 2, 256, 32


# Gradient ascent over rows in the embedding ball, for one position's local norm.
#
# The ball has radius max |embedding + position encoding|, on which the closed forms hold:
# beyond it an estimate could exceed a bound without refuting it. On a convex domain the
# largest local norm is the Lipschitz constant, so nothing is lost by differentiating instead
# of taking secants.


def ball_radius(model: Transformer, length: int) -> float:
    """Largest |embedding[s] + position[j]| over symbols s and positions j < n."""
    positions = np.asarray(encode_positions(model, length), np.float64)
    embedding = np.asarray(model.embedding, np.float64)
    return max(float(np.linalg.norm(positions + e, axis=1).max()) for e in embedding)


@functools.partial(jax.jit, static_argnames=("query", "target", "steps"))
def ascend_in_ball(
    model: Transformer,
    rows: Rows,
    direction: Row,
    position: Int[Array, ""],
    free: Bool[Array, "tokens"],
    radius: Scalar,
    *,
    query: int,
    target: str,
    steps: int,
) -> tuple[Scalar, Rows, Row]:
    """Largest |J_i(z) v| met by an ascent over rows z and unit vectors v, with z and v."""
    # J_i is the Jacobian of the output in row i = `position`. Only the rows of z that
    # are `free` move. ln |J_i(z) v| is maximised over z, by Adam with projection to the
    # ball, and over v, by power iteration: the gradient in v already is J^T J v.
    optimiser = optax.adam(optax.cosine_decay_schedule(1.0, steps))
    rate = 0.1 * radius / rows.shape[1] ** 0.5  # a tenth of a row at the radius
    to_ball = jax.vmap(optax.projections.projection_l2_ball, (0, None))

    def log_gain(point: tuple[Rows, Row]) -> Scalar:
        rows, direction = point
        unit = direction / scaled_norm(direction)
        tangent = jnp.zeros_like(rows).at[position].set(unit)
        _, change = jax.jvp(
            lambda z: output_at(model, z, query, target), (rows,), (tangent,)
        )
        return log_norm(change)

    def advance(point: Any, slopes: Any, moments: Any) -> tuple[Any, Any]:
        (rows, direction), (slope, turn) = point, slopes
        update, moments = optimiser.update(-slope, moments, rows)
        moved = to_ball(rows + rate * update, radius)
        rows = jnp.where(free[:, None], moved, rows)
        # J^T J v / |J v|^2, of which the gradient is the part orthogonal to v.
        direction = direction + turn
        return (rows, direction / scaled_norm(direction)), moments

    first = (rows, direction / scaled_norm(direction))
    gain, best = ascend(log_gain, advance, first, optimiser.init(rows), steps)
    return jnp.exp(gain), *best


@dataclasses.dataclass(frozen=True)
class Effort:
    """Effort of the gradient ascent: how often it starts, and its steps.

    Attributes:
        restarts: Starting points of the ascent; 0 leaves it out.
        steps: Steps from each.
    """

    restarts: int = 3
    steps: int = 100

    def __post_init__(self) -> None:
        """Refuses numbers out of range, and more steps than can be run."""
        for name, least in (("restarts", 0), ("steps", 1)):
            expect_integer(name, getattr(self, name), least)
        what = f"{self.restarts} ascents of {self.steps} steps"
        require_operations(what, PYTHON_STEP * self.restarts * self.steps)


@dataclasses.dataclass(frozen=True)
class Look:
    """One input with its Jacobian's (local) norms and best substitution, before an ascent."""

    rows: Rows  # y^(0)
    free: Bool[np.ndarray, "tokens"]  # bool: holds a token that may be substituted
    direction: Float[np.ndarray, "width"]  # unit vector that attains the largest norm
    local: Estimate
    substitution: Estimate
    influence: float  # the largest of a substitution, less rounding


@dataclasses.dataclass(frozen=True)
class Searches:
    """Three searches on a model prepared for one length, at one query and target."""

    model: Transformer
    query: int
    target: PlainTarget
    steps: int
    seed: int

    @property
    def watched(self) -> Any:
        """Query and target as keyword arguments of the functions that are called."""
        return {"query": self.query, "target": self.target}

    def look(self, index: int, tokens: Tokens) -> Look:
        """Local norms and best substitution; an InputError if no position may change."""
        listed = self.model.substitutable
        free = np.isin(tokens, tokens if listed is None else listed)
        movable = free & (np.arange(len(tokens)) != self.query)
        if not movable.any():
            raise InputError(
                f"input {index} has no position that may change: only the symbols "
                f"{sorted(listed or ())} are substituted, and not at the query"
            )
        rows = embedded(self.model, jnp.asarray(tokens, jnp.int32))
        how = {**self.watched, "seed": self.seed}
        norms, directions, iterations = block_norms(self.model, rows, **how)
        norms[~movable] = np.nan
        top = int(np.nanargmax(norms))
        found = float(norms[top]), "local", self.seed, iterations, top
        exact = self._substitute(index, tokens, norms)
        return Look(rows, free, directions[top], Estimate(*found, input=index), *exact)

    def _substitute(
        self, index: int, tokens: Tokens, norms: Float[np.ndarray, "tokens"]
    ) -> tuple[Estimate, float]:
        """Largest ratio by substitutions on one input, and largest influence met there."""
        positions: list[int] | None = None
        if len(self.model.layers) > INCREMENTAL_LAYERS and len(tokens) > EXHAUST_TO:
            order = np.argsort(-np.nan_to_num(norms, nan=-1.0), kind="stable")
            positions = np.sort(order[:POSITIONS]).tolist()
        asked = {**self.watched, "positions": positions}
        found = compute_influence(self.model, tokens, **asked)
        assert found.lower is not None
        distances = embedding_distances(self.model, tokens)
        # Equal embeddings have no influence on anything, and no ratio.
        possible = ~np.isnan(found.lower) & (distances > 0)
        ratios = np.divide(
            found.lower, distances, out=-np.ones_like(distances), where=possible
        )
        at = np.unravel_index(np.argmax(ratios), ratios.shape)
        position, symbol = (int(x) if possible.any() else None for x in at)
        ratio, made = max(float(ratios[at]), 0.0), found.substitutions
        best = Estimate(ratio, "substitution", self.seed, made, position, symbol, index)
        return best, found.max_lower

    def ascend(self, look: Look, restart: int) -> Estimate:
        """Largest local norm met by an ascent; only restart 0 begins at the input itself."""
        dtype, radius = self.model.dtype, ball_radius(self.model, len(look.rows))
        rows, position = np.asarray(look.rows), look.local.position
        if restart:
            # Half way to a random point on the border: far from the tokens and from
            # other restarts, and inside, where the ascent can turn every way.
            draw = np.random.default_rng([self.seed, restart])
            border = draw.standard_normal(rows.shape)
            border *= radius / np.linalg.norm(border, axis=1, keepdims=True)
            rows = np.where(look.free[:, None], (rows + border) / 2, rows)
        direction = look.direction if look.direction.any() else look.direction + 1
        start = (jnp.asarray(x, dtype) for x in (rows, direction))
        at, free = jnp.asarray(position, jnp.int32), jnp.asarray(look.free)
        given = self.model, *start, at, free, jnp.asarray(radius, dtype)
        value, _, _ = ascend_in_ball(*given, **self.watched, steps=self.steps)
        begun = {"position": position, "input": look.local.input}
        return Estimate(float(value), "ball", self.seed, self.steps, **begun)


def embedding_distances(
    model: Transformer, tokens: Tokens
) -> Float[np.ndarray, "tokens symbols"]:
    """Distances |embedding[s] - embedding[x_i]| of every substitution."""
    embedding = np.asarray(model.embedding, np.float64)
    between = np.array([np.linalg.norm(embedding - e, axis=1) for e in embedding])
    return between[tokens]


def _largest(found: Sequence[Estimate]) -> Estimate:
    """Largest of several estimates of one search, with the iterations of all."""
    top = max(found, key=lambda one: one.value)
    return dataclasses.replace(top, iterations=sum(one.iterations for one in found))


def estimate_lipschitz(
    model: Transformer,
    length: int,
    *,
    inputs: str | InputSource = "random",
    num_inputs: int = 4,
    restarts: int = 3,
    steps: int = 100,
    seed: int = 0,
    query: int | None = None,
    target: PlainTarget = "activation",
) -> LipschitzEstimate:
    """Returns the largest observed ratio of output change to embedding change.

    K_n = sup |y_q(z') - y_q(z)| / |z'_i - z_i| over positions i != q and rows z, z' that
    differ at i alone, all of norm at most max |embedding + position encoding|. The
    searches, each an estimate of K_n from below:

    * "substitution": every single-symbol substitution on each input, its exact
      influence (rounding taken off) over the distance of the two embeddings;
    * "local": the operator norm |d y_q / d z_i| at each input, for every position, by
      power iteration with vjp (and jvp, where the output is wide);
    * "ball": gradient ascent of that norm over all rows in the ball, with restarts.

    A derivative at a kink of relu is the one that JAX takes. Estimates, not bounds.

    Args:
        model: A transformer with softmax attention in every layer.
        length: n >= 2, in tokens.
        inputs: A language to sample from ("random": uniform strings), or a source such
            as `bounds.curves.inputs.GivenInputs`.
        num_inputs: Number of inputs, where they are sampled.
        restarts: Starting points of the ascent; 0 leaves it out.
        steps: Steps of the ascent from each.
        seed: Seed of the sampled inputs and of all that is random in the searches.
        query: Row that is read, from either end; by default a head's row, else the last.
        target: "activation" or "logits".

    Returns:
        The estimate, with the best of each search.

    Raises:
        InputError: A weighting is hard, so that there is no Lipschitz constant; nothing
            can change; or an argument or input does not fit the model.

    Example:
        >>> import jax, jax_models as jm
        >>> model = jm.random_transformer(
        ...     jax.random.key(0), num_layers=1, num_heads=1, d_model=4, d_ff=4,
        ...     vocab_size=2)
        >>> found = estimate_lipschitz(model, 4, restarts=0)
        >>> found.method, found.scaled == 4 * found.value
        ('local', True)
    """
    Effort(restarts, steps)  # refuses bad numbers
    remedy = (
        "to estimate; use compute_influence for the exact influence, or re-weight the "
        "model with softmax"
    )
    model, length, query = check_watched(model, length, query, target)
    refuse_hard(model, remedy)
    check_changeable(length)
    source = open_inputs(model, inputs, num_inputs, seed)
    inputs_drawn = (source.draw(length, index) for index in range(source.count))
    drawn = [np.asarray(check_tokens(model.vocab_size, x)) for x in inputs_drawn]
    # Behind an input's last token nothing is of the second type.
    symbols = {int(x) for tokens in drawn for x in tokens[:-1]}
    model = of_one_text(model, symbols.union(model.substitutable or ()))
    if lack := unsupported_dropout(model):
        raise InputError(
            f"an estimate of Lipschitz constants cannot follow the model: {lack}"
        )
    model = at_length(model, length)
    search = Searches(model, query, target, steps, seed)
    looks = [search.look(index, tokens) for index, tokens in enumerate(drawn)]
    order = sorted(looks, key=lambda look: -look.local.value)
    met = [
        [look.substitution for look in looks],
        [look.local for look in looks],
        [search.ascend(order[k % len(order)], k) for k in range(restarts)],
    ]
    found = [_largest(estimates) for estimates in met if estimates]
    top = max(found, key=lambda one: one.value)
    return LipschitzEstimate(
        **dataclasses.asdict(top),
        length=length,
        **search.watched,
        radius=ball_radius(model, length),
        influence=max(look.influence for look in looks),
        searches=tuple(found),
    )

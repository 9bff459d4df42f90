"""The estimate at one length: three searches, each over several inputs."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import get_args

import jax.numpy as jnp
import numpy as np

from bounds.curves.inputs import InputSource, check_changeable, open_inputs
from bounds.influence.problem import Target, check_head_row
from bounds.influence.substitution import check_query
from bounds.lemma5.lipschitz.ball import ascend, ball_radius
from bounds.lemma5.lipschitz.jacobian import block_norms
from bounds.lemma5.lipschitz.result import Estimate, LipschitzEstimate
from bounds.lemma5.lipschitz.substitution import (
    Substitution,
    all_positions,
    largest_ratio,
)
from bounds.readings.rules import lacks_of_dropout, of_one_text
from jax_models import InputError, Transformer
from jax_models.arguments import (
    choose_name,
    choose_names,
    expect_integer,
    expect_length,
)
from jax_models.format.model_check import check_model
from jax_models.model.reweight import at_length
from jax_models.model.transformer import embedded
from jax_models.run.device_memory import PYTHON_STEP, require_operations
from jax_models.run.evaluate import check_tokens, require_readout

SEARCHES = ("substitution", "local", "ball")


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much is searched.

    Attributes:
        restarts: Starting points of the ascent; 0 leaves it out.
        steps: Steps from each.
    """

    restarts: int = 3
    steps: int = 100

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name, least in (("restarts", 0), ("steps", 1)):
            expect_integer(name, getattr(self, name), least)
        what = f"{self.restarts} ascents of {self.steps} steps"
        require_operations(what, PYTHON_STEP * self.restarts * self.steps)


@dataclasses.dataclass(frozen=True)
class Look:
    """One input, and what was found on it before any ascent."""

    input: int
    tokens: np.ndarray  # [n]
    free: np.ndarray  # [n] bool: holds a token that may be substituted
    norms: np.ndarray  # [n] local norms, NaN where the position may not change
    directions: np.ndarray  # [n, d] of unit vectors that attain them
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

    def look(self, index: int, tokens: np.ndarray, slopes: bool) -> Look:
        """Returns the local norms and the best exact substitution on one input.

        Args:
            index: Which input it is.
            tokens: The input [n].
            slopes: Whether local norms are wanted; without, they are all taken as 1
                where the choice of substitutions does not need them.

        Raises:
            InputError: No position of the input may change.
        """
        listed = self.model.substitutable
        free = np.isin(tokens, tokens if listed is None else listed)
        movable = free & (self.include_query | (np.arange(len(tokens)) != self.query))
        if not movable.any():
            raise InputError(
                f"input {index} has no position that may change: only the symbols "
                f"{sorted(listed or ())} are substituted, and not at the query"
            )
        rows = embedded(self.model, jnp.asarray(tokens, jnp.int32))
        if slopes or not all_positions(self.model, len(tokens)):
            norms, directions, iterations = block_norms(
                self.model, rows, query=self.query, target=self.target, seed=self.seed
            )
        else:
            norms, directions, iterations = np.ones(len(tokens)), np.asarray(rows), 0
        norms[~movable] = np.nan
        best = largest_ratio(
            self.model,
            tokens,
            norms,
            query=self.query,
            target=self.target,
            include_query=self.include_query,
        )
        return Look(index, tokens, free, norms, directions, iterations, best)

    def substitution(self, looks: list[Look]) -> Estimate:
        """Returns the largest exact ratio over all inputs."""
        top = max(looks, key=lambda look: look.best.ratio)
        best, made = top.best, sum(look.best.count for look in looks)
        at = best.position, best.symbol, top.input
        return Estimate(best.ratio, "substitution", self.seed, made, *at)

    def local(self, looks: list[Look]) -> Estimate:
        """Returns the largest local norm over all inputs."""
        top, made = max(looks, key=lambda x: x.norm), sum(x.iterations for x in looks)
        at = top.position, None, top.input
        return Estimate(top.norm, "local", self.seed, made, *at)

    def ball(self, looks: list[Look]) -> Estimate:
        """Returns the largest local norm that gradient ascent met in the ball."""
        order = sorted(looks, key=lambda look: -look.norm)
        made = self.effort.restarts * self.effort.steps
        best = Estimate(0.0, "ball", self.seed, made)
        for restart in range(self.effort.restarts):
            look = order[restart % len(order)]
            value = self._ascend(look, restart)
            if value > best.value:
                at = {"position": look.position, "input": look.input}
                best = dataclasses.replace(best, value=value, **at)
        return best

    def _ascend(self, look: Look, restart: int) -> float:
        """The largest local norm met from an input; restarts but the first begin off it."""
        dtype, radius = self.model.dtype, ball_radius(self.model, len(look.tokens))
        rows = np.asarray(embedded(self.model, jnp.asarray(look.tokens, jnp.int32)))
        if restart:
            # Half way to a random point on the border: far from the tokens and from
            # other restarts, and inside, where the ascent can turn every way.
            draw = np.random.default_rng([self.seed, restart])
            border = draw.standard_normal(rows.shape)
            border *= radius / np.linalg.norm(border, axis=1, keepdims=True)
            rows = np.where(look.free[:, None], (rows + border) / 2, rows)
        direction = look.directions[look.position]
        value, _, _ = ascend(
            self.model,
            jnp.asarray(rows, dtype),
            jnp.asarray(direction if direction.any() else direction + 1, dtype),
            jnp.asarray(look.position, jnp.int32),
            jnp.asarray(look.free),
            jnp.asarray(radius, dtype),
            query=self.query,
            target=self.target,
            steps=self.effort.steps,
        )
        return float(value)


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
    target: Target = "activation",
    include_query: bool = False,
    searches: Sequence[str] = SEARCHES,
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
        query: Position whose output is looked at, negative ones counting from the end; by
            default the row of a classifier's head, else the last.
        target: "activation" or "logits".
        include_query: Whether the query's own embedding may change too.
        searches: Which searches to make; all by default.

    Returns:
        The estimate, with the best of each search.

    Raises:
        InputError: A weighting is hard, so that there is no Lipschitz constant; nothing
            can change; or the inputs do not fit the model.

    Example:
        >>> import jax, jax_models as jm
        >>> model = jm.random_transformer(
        ...     jax.random.key(0), num_layers=1, num_heads=1, d_model=4, d_ff=4,
        ...     vocab_size=2)
        >>> found = estimate_lipschitz(model, 4, searches=["substitution"])
        >>> found.method, found.scaled == 4 * found.value
        ('substitution', True)
    """
    effort = Effort(restarts, steps)
    choose_name("target", target, get_args(Target))
    searches = choose_names("searches", searches, SEARCHES)
    if not searches:
        raise InputError(f"no searches asked for; choose among {', '.join(SEARCHES)}")
    model = check_model(model)
    _refuse_hard(model)
    length = expect_length(length)
    if not include_query:
        check_changeable(length)
    if target == "logits":
        require_readout(model)
    query = check_query(query, length, model)
    check_head_row(model, target, [query], length)
    source = open_inputs(model, inputs, num_inputs, seed)
    drawn = [
        np.asarray(check_tokens(model.vocab_size, source.draw(length, index)))
        for index in range(source.count)
    ]
    # Behind an input's last token nothing is of the second type.
    symbols = {int(x) for tokens in drawn for x in tokens[:-1]}
    model = of_one_text(model, symbols.union(model.substitutable or ()))
    if lack := lacks_of_dropout(model):
        raise InputError(
            f"an estimate of Lipschitz constants cannot follow the model: {lack}"
        )
    model = at_length(model, length)
    search = Searches(model, query, target, include_query, effort, seed)
    slopes = set(searches) != {"substitution"}
    looks = [search.look(index, tokens, slopes) for index, tokens in enumerate(drawn)]
    ways = {"substitution": search.substitution, "local": search.local}
    ways |= {"ball": search.ball} if restarts else {}
    found = [ways[name](looks) for name in ways if name in searches]
    if not found:
        raise InputError("restarts = 0 leaves none of the searches asked for")
    top = max(found, key=lambda one: one.value)
    norms = [look.norms for look in looks if look.iterations]
    return LipschitzEstimate(
        **dataclasses.asdict(top),
        length=length,
        query=query,
        target=target,
        radius=ball_radius(model, length),
        influence=max(look.best.influence for look in looks),
        searches=tuple(found),
        position_norms=functools.reduce(np.fmax, norms, np.full(length, np.nan)),
    )


def _refuse_hard(model: Transformer) -> None:
    for depth, layer in enumerate(model.layers):
        if layer.attention.weighting.hard:
            raise InputError(
                f"layers.{depth}: the weighting {layer.attention.weighting.name} is "
                "hard: a winner changes by a jump, so there is no Lipschitz constant to "
                "estimate; use compute_influence for the exact influence, or re-weight "
                "the model with softmax"
            )

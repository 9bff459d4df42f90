"""The searches at one length, each over several inputs and restarts."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from bounds.curves.inputs import InputSource, check_changeable, open_inputs
from bounds.influence.problem import Target, check_head_row
from bounds.influence.substitution import check_query
from bounds.lemma5.lipschitz.ascent import Point, ascend, ascend_tokens
from bounds.lemma5.lipschitz.domain import (
    Ball,
    Domain,
    ball_radius,
    free_symbols,
    make_ball,
    make_simplex,
)
from bounds.lemma5.lipschitz.jacobian import block_norms
from bounds.lemma5.lipschitz.result import Estimate, LipschitzEstimate
from bounds.lemma5.lipschitz.substitution import (
    Substitution,
    all_positions,
    free_rows,
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

HIGHEST = jax.lax.Precision.HIGHEST

# Random points this many deviations out reach the border of every domain.
FAR = 10.0
SEARCHES = ("substitution", "local", "ball", "simplex", "tokens")


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
        what = f"{self.restarts} ascents of {self.steps} steps"
        require_operations(what, PYTHON_STEP * self.restarts * self.steps)


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
        rows = embedded(self.model, jnp.asarray(tokens, jnp.int32))
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
        rows = embedded(self.model, jnp.asarray(look.tokens, jnp.int32))
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


def estimate_lipschitz(
    model: Transformer,
    length: int,
    *,
    inputs: str | InputSource = "random",
    num_inputs: int = 4,
    restarts: int = 3,
    steps: int = 100,
    rounds: int = 8,
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
    * "ball", "simplex": gradient ascent of that norm over all rows, in the ball and in
      the mixtures of tokens, with restarts;
    * "tokens": discrete coordinate ascent over the other tokens, re-evaluated exactly.

    A derivative at a kink of relu is the one that JAX takes. Estimates, not bounds.

    Args:
        model: A transformer with softmax attention in every layer.
        length: n >= 2, in tokens.
        inputs: A language to sample from ("random": uniform strings), or a source such
            as `bounds.curves.inputs.GivenInputs`.
        num_inputs: Number of inputs, where they are sampled.
        restarts: Starting points of each ascent; 0 leaves the ascents out.
        steps: Steps of a gradient ascent.
        rounds: Rounds of the ascent over tokens, at most.
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
    effort = Effort(restarts, steps, rounds)
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
    slopes = bool({"local", "ball", "simplex"} & set(searches))
    looks = []
    for index, tokens in enumerate(drawn):
        looks.append(search.look(index, tokens, slopes))
    found, influence = [], max(look.best.influence for look in looks)
    if "substitution" in searches:
        found.append(search.substitution(looks))
    if "local" in searches:
        found.append(search.local(looks))
    for name, make in (("ball", make_ball), ("simplex", make_simplex)):
        domain = make(model, length) if name in searches and restarts else None
        if domain is not None:
            found.append(search.relaxed(looks, domain))
    if "tokens" in searches and restarts:
        best, met = search.tokens(looks)
        found.append(best)
        influence = max(influence, met)
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
        influence=influence,
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

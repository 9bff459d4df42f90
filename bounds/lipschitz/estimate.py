"""`estimate_lipschitz`: every search at one length, and the largest ratio it met."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import get_args

import numpy as np

from bounds.influence.problem import Target
from bounds.influence.substitution import check_query
from bounds.inputs import InputSource, check_changeable, open_inputs
from bounds.lipschitz.domain import ball_radius, make_ball, make_simplex
from bounds.lipschitz.result import LipschitzEstimate
from bounds.lipschitz.searches import Effort, Searches
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, choose_names, expect_length
from jax_models.evaluate import check_tokens, require_readout
from jax_models.model_check import check_model
from jax_models.reweight import at_length

SEARCHES = ("substitution", "local", "ball", "simplex", "tokens")


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
    query: int = -1,
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
            as `bounds.inputs.GivenInputs`.
        num_inputs: Number of inputs, where they are sampled.
        restarts: Starting points of each ascent; 0 leaves the ascents out.
        steps: Steps of a gradient ascent.
        rounds: Rounds of the ascent over tokens, at most.
        seed: Seed of the sampled inputs and of all that is random in the searches.
        query: Position whose output is looked at; negative ones count from the end.
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
    query = check_query(query, length)
    source = open_inputs(model, inputs, num_inputs, seed)
    model = at_length(model, length)
    search = Searches(model, query, target, include_query, effort, seed)
    slopes = bool({"local", "ball", "simplex"} & set(searches))
    looks = []
    for index in range(source.count):
        tokens = np.asarray(check_tokens(model.vocab_size, source.draw(length, index)))
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

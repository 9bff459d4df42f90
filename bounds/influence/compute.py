"""`compute_influence`: checks the question, chooses a method, gathers its blocks."""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bounds.influence.bare_function import Radius, check_radius
from bounds.influence.base import (
    Influence,
    Method,
    Problem,
    SharedBase,
    Target,
    judge_ties,
)
from bounds.influence.exhaustive import EXHAUSTIVE
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.lumped import LUMPED
from bounds.influence.maxima import Maxima
from bounds.influence.screened import SCREENED
from bounds.influence.sharding import sharded
from bounds.influence.substitution import (
    Substitutions,
    check_query,
    list_substitutions,
    not_finite,
)
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_integer, expect_number
from jax_models.evaluate import (
    TieRule,
    check_tokens,
    require_readout,
)
from jax_models.float_type import check_float_type
from jax_models.model_check import check_model

METHODS: dict[str, Method] = {
    method.name: method for method in (LUMPED, INCREMENTAL, SCREENED, EXHAUSTIVE)
}
Keep = Literal["pairs", "position_max"]


def choose_method(name: str, problem: Problem) -> tuple[Method, str]:
    """Returns the method to use and the reason for it.

    Raises:
        InputError: for an unknown name, or a method that cannot do this model.
    """
    choose_name("method", name, ("auto", *METHODS))
    refusals = {method: METHODS[method].refuse(problem) for method in METHODS}
    if name != "auto":
        if refusals[name] is not None:
            raise InputError(
                f"method {name!r} cannot do this model: {refusals[name]}; use "
                'method="auto"'
            )
        return METHODS[name], "asked for"
    able = [METHODS[method] for method, refusal in refusals.items() if refusal is None]
    best = min(able, key=lambda method: method.cost(problem))
    cost = f"about {best.cost(problem):.3g} forward passes"
    others = [f"{m} cannot: {refusal}" for m, refusal in refusals.items() if refusal]
    return best, "; ".join([f"the cheapest that can do it, {cost}", *others])


def compute_influence(
    model: Transformer | Callable[[Any], Any],
    tokens: Any,
    *,
    method: str = "auto",
    query: int = -1,
    target: Target = "activation",
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    include_query: bool = False,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    vocab_size: int | None = None,
    radius: Radius | None = None,
    dtype: Any = None,
    mesh: Mesh | None = None,
    rtol: float = 0.0,
    budget: int = 32,
    checkpoint: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    shared: SharedBase | None = None,
) -> Influence:
    """Returns how much each single-symbol substitution changes the query row, exactly.

    influence(i, s) = |y_q(x with x_i := s) - y_q(x)|_2 over all positions i != q and
    symbols s != x_i, in the units of the activations (or of the logits). Of a bare
    function it is estimated, unless a radius is stated.

    Args:
        model: a transformer, or any function from tokens [n] to a vector (then only
            `exhaustive` applies and `vocab_size` is needed). A function made by
            `jax.jit` runs on a batch of inputs at a time.
        tokens: integers in [0, V) [n].
        method: "auto" (the cheapest exact one), "lumped" (classes of equal rows),
            "incremental" (change propagation), "screened" (certified enclosures, and the
            exact maximum where they close), or "exhaustive".
        query: the row that is watched; negative counts from the end.
        target: "activation" (final activations) or "logits".
        symbols: substitute symbols; by default all that the model's `substitutable`
            allows.
        positions: positions that are changed; all by default.
        include_query: whether the query's own token is changed too.
        ties: what to do where rounding decides a hard-attention winner: "error",
            "warn" or "ignore".
        keep: "pairs" keeps the tables [n, V], "position_max" only maxima [n].
        vocab_size: V, for a bare function.
        radius: of a bare function: how far the vector it returns, as float64, may be
            from the true one in the 2-norm; a number, or a function of the tokens [n]
            that returns one. Influences are enclosed with it, twice, and the rounding
            of the norm; without it they are estimates, whose ends are their values.
        dtype: asserts the float type; "float64" without x64 is an error.
        mesh: devices to share the substitutions out over (`device_mesh`), in one process
            or, if all of them ask the same question, in many; by default one device.
        rtol: of "screened": stop when the maximum's upper end / lower end - 1 is at most
            this.
        budget: of "screened": the most exact evaluations.
        checkpoint: of "screened": a file that keeps where it stands, every few seconds; a
            call that was killed goes on from it, and one with a larger budget or a
            smaller rtol goes further.
        memory_limit: bytes that the blocks of substitutions under way may take on a
            device, with what they share; by default half of what the device has. A
            smaller one makes smaller blocks.
        progress: called with (substitutions done, all) after every block.
        shared: the same object in calls about the same model, tokens and query, which
            then have one base pass.

    Returns:
        An `Influence`.

    Raises:
        InputError: for anything in the question that does not fit the model.
        TieError: for an ambiguous tie under ties="error".
    """
    started = time.perf_counter()
    choose_name("ties", ties, get_args(TieRule))
    choose_name("target", target, get_args(Target))
    choose_name("keep", keep, get_args(Keep))
    if isinstance(model, Transformer):
        model = check_model(model)
        _check_dtype(model, dtype)
        checked = np.asarray(check_tokens(model.vocab_size, tokens))
        vocab_size, allowed = model.vocab_size, model.substitutable
        if target == "logits":
            require_readout(model)
        if radius is not None:
            raise InputError(
                "radius is of a bare function, and the model is a Transformer, whose "
                "rounding is known: leave radius out"
            )
    else:
        if not callable(model):
            raise InputError(
                f"model is a {type(model).__name__}; expected a Transformer, or a "
                "function from tokens to a vector"
            )
        if vocab_size is None:
            raise InputError("a bare function needs vocab_size, the number of symbols")
        vocab_size = expect_integer("vocab_size", vocab_size, 1)
        checked, allowed = np.asarray(check_tokens(vocab_size, tokens)), None
        if radius is not None and not callable(radius):
            radius = check_radius(radius)
    query = check_query(query, checked.size)
    pairs = list_substitutions(
        checked,
        vocab_size,
        query=query,
        symbols=symbols,
        positions=positions,
        substitutable=allowed,
        include_query=include_query,
    )
    _check_stopping(rtol, budget)
    if memory_limit is not None:
        memory_limit = expect_integer("memory_limit in bytes", memory_limit, 1)
    problem = Problem(
        model,
        checked,
        query,
        target,
        pairs.position,
        pairs.symbol,
        rtol,
        budget,
        None if checkpoint is None else os.fspath(checkpoint),
        shared or SharedBase(),
        memory_limit=memory_limit,
        radius=radius,
    )
    chosen, reason = choose_method(method, problem)
    if mesh is not None:
        chosen = sharded(chosen, mesh)
    return _gather(problem, pairs, chosen, reason, ties, keep, progress, started)


def _check_stopping(rtol: float, budget: int) -> None:
    expect_number("rtol", rtol, 0)
    expect_integer("budget, in exact evaluations,", budget, 1)


def _check_dtype(model: Transformer, dtype: Any) -> None:
    if dtype is not None:
        check_float_type(dtype, "the dtype asked for")
    if dtype is not None and jnp.dtype(dtype) != jnp.dtype(model.dtype):
        raise InputError(
            f"dtype = {jnp.dtype(dtype).name} but the model is "
            f"{jnp.dtype(model.dtype).name}; convert the model, or leave dtype out"
        )


def _gather(
    problem: Problem,
    pairs: Substitutions,
    method: Method,
    reason: str,
    ties: TieRule,
    keep: Keep,
    progress: Callable[[int, int], None] | None,
    started: float,
) -> Influence:
    """Collects the blocks of a method into the result."""
    found, met = Maxima(pairs, dense=keep == "pairs"), None
    enclosed = None
    # Before anything runs: a memory limit may be too small.
    sizes = method.sizes(problem) if len(pairs) else None
    if method.enclose is not None and len(pairs):
        enclosed = method.enclose(problem, progress)
        found.enclose(enclosed)
    for block in method.blocks(problem) if len(pairs) and enclosed is None else ():
        if not np.isfinite(block.influence).all():
            bad = int(np.flatnonzero(~np.isfinite(block.influence))[0])
            raise not_finite(*pairs[found.done + bad])
        found.add(block)
        met = block.ties if met is None or block.ties is None else met.merge(block.ties)
        if progress is not None:
            progress(found.done, len(pairs))
    if met is not None:
        judge_ties(problem.model, met, f"row {met.row}", ties)
    estimated = not isinstance(problem.model, Transformer) and problem.radius is None
    position, symbol = (None, None) if found.best is None else pairs[found.best]
    return Influence(
        lower=found.lower,
        upper=found.upper,
        position_lower=found.position_lower,
        position_upper=found.position_upper,
        position_symbol=found.position_symbol,
        max=found.max,
        max_lower=found.max_lower,
        max_upper=found.max_upper,
        position=position,
        symbol=symbol,
        query=problem.query,
        target=problem.target,
        method=method.name,
        exact=method.exact and not estimated,
        estimated=estimated,
        reason=reason,
        zeros=found.zeros,
        substitutions=len(pairs),
        ties=met,
        seconds=time.perf_counter() - started,
        evaluated=len(pairs) if enclosed is None else enclosed.evaluated,
        uncertified=0 if enclosed is None else enclosed.left.size,
        levels=() if enclosed is None else enclosed.levels,
        block=sizes,
    )

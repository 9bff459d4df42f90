"""`compute_influence`: checks the question, chooses a method, and answers it."""

import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, get_args

from jax.sharding import Mesh

from bounds.influence.answer import Propose, answer
from bounds.influence.batch import of_each_input
from bounds.influence.callable import Callable as Function
from bounds.influence.callable import Radius
from bounds.influence.choice import METHOD_NAMES, SCREENS, Keep, choose_method
from bounds.influence.method import Stopping
from bounds.influence.problem import Problem, Watched
from bounds.influence.result import Influence
from bounds.influence.rounding import Rounding
from bounds.influence.shared_base import SharedBase
from bounds.influence.substitution import Symbols
from bounds.numbers.kind import RTOL_EXACT, check_rtol_exact
from bounds.rounding.measured_error import measure_error
from bounds.rounding.precision import Precision
from jax_models import Transformer
from jax_models.arguments import choose_name, refuse_unread
from jax_models.run.evaluate import TieRule


@of_each_input
def compute_influence(
    model: Transformer | Function | Callable[[Any], Any],
    tokens: Any,
    *,
    method: str = "auto",
    query: int | None = None,
    target: Watched = "activation",
    symbols: Symbols | None = None,
    positions: Sequence[int] | None = None,
    include_query: bool = False,
    ties: TieRule = "error",
    keep: Keep = "pairs",
    propose: Propose | None = None,
    vocab_size: int | None = None,
    radius: Radius | None = None,
    dtype: Any = None,
    mesh: Mesh | None = None,
    rtol: float = 0.0,
    rtol_exact: float = RTOL_EXACT,
    budget: int | None = 32,
    checkpoint: str | os.PathLike[str] | None = None,
    memory_limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
    shared: SharedBase | None = None,
    precision: Precision | None = None,
    rounding: Rounding = "auto",
) -> Influence:
    """Exact influence of every single-symbol substitution on the query row.

        influence(i, s) = |y_q(x with x_i := s) - y_q(x)|_2

    over all positions i != q and symbols s != x_i, in the units of the activations (or
    of the logits). The largest, or all (`rounding`), come with a radius of rounding.
    Where that of the maximum is more than rtol_exact times the maximum, the answer is
    an enclosure, not exact. For a function without parameters the answer is estimated,
    unless a radius is stated.

    Args:
        model: a transformer, or a `Callable`, to which only `exhaustive` applies; or a
            bare function from tokens [n] to a vector, with `vocab_size`. A function
            made by `jax.jit` runs on a batch of inputs at a time, and is compiled anew
            in every call: a `Callable` is not.
        tokens: integers in [0, V) [n]; or a list of such inputs of any lengths.
        method: "auto" (the cheapest exact one), "lumped" (classes of equal rows),
            "incremental" (change propagation), "screened" (enclosures of all, and the
            exact maximum where they close; "auto" takes it with keep="max" alone, and
            enumerates what is left), "exhaustive" (a pass for each), or "partial"
            (passes of what can move and is read).
        query: the row that is watched, negative counting from the end; by default that
            of a classifier's head, else the last.
        target: "activation" (final activations), "logits", "log_probabilities",
            "pooled" (the model's own pooling), or a value of `bounds.influence`: the
            log-probability or loss of a symbol, a difference of two logits, log-odds, a
            sum over rows of log-probabilities, one's own function. A target of many
            rows leaves `query` unused, and every token is changed.
        symbols: substitute symbols; by default all that the model's `substitutable`
            allows. Or [P, K] padded with -1: row p are those of the p-th of P
            positions.
        positions: positions that are changed; all by default.
        include_query: whether the query's own token is changed too.
        ties: what to do where rounding decides a hard-attention winner: "error", "warn"
            or "ignore".
        keep: "pairs" keeps the tables [n, V], "position_max" only maxima [n], "max" the
            maximum alone.
        propose: "float32" computes all in float32 first, with radii, and then in
            float64 those whose upper end reaches the largest lower end. The maximum,
            its position and its symbol are those without `propose`; the ends of the
            others are those of float32. "bfloat16" or "float16" ranks all as
            `precision` estimates them, and computes in float64 from the top until the
            rest is below by four times the largest error measured: value, position and
            symbol are exact, that they are the maximum is estimated, and the others are
            estimates.
        vocab_size: V, for a bare function.
        radius: of a bare function: bound on the 2-norm distance of its vector, as
            float64, from the true one; a number, or a function of the tokens [n] that
            returns one. Influences are enclosed with twice the radius and the rounding
            of the norm; without it they are estimates, whose ends are their values.
        dtype: asserts the float type; "float64" without x64 is an error.
        mesh: devices to share the substitutions out over (`device_mesh`), in one
            process or, if all of them ask the same question, in many; by default one
            device.
        rtol: of "screened": stop when the maximum's upper end / lower end - 1 is at
            most this.
        rtol_exact: the maximum is "exact" where its radius of rounding is at most this
            times its value, and an "enclosure" where the radius is larger.
        budget: of "screened": the most exact evaluations; None for as many as it takes,
            in parts of about a minute.
        checkpoint: of "screened" and of `propose`: a file that keeps the state, every
            few seconds; a call that was killed goes on from it, and a screen with a
            larger budget or a smaller rtol goes further.
        memory_limit: bytes that the blocks of substitutions under way may take on a
            device, with what they share; by default half of what the device has. A
            smaller one makes smaller blocks.
        progress: called with (substitutions done, all) after every block; a screen
            counts anew, for each level and the enumeration, those that were left open.
        shared: the same object in calls about the same model, tokens and row(s), which
            then have one base pass.
        precision: "bfloat16" or "float16": that of the products of changes, of
            "incremental" alone, without hard attention. Results are estimated, and come
            with the error of a sample (`MeasuredError`).
        rounding: "all" gives every result a radius of rounding, by four more runs with
            moved inputs; "top" those of a block with the largest, and the others are
            estimated; "none" estimates. "auto" is all where that takes about a second
            of one core, and top beyond. A stated radius goes before.

    Returns:
        An `Influence`; of a list of inputs a list of them.

    Raises:
        InputError: for anything in the question that does not fit the model.
        TieError: for an ambiguous tie under ties="error".
    """
    started = time.perf_counter()
    choose_name("method", method, METHOD_NAMES)
    choose_name("ties", ties, get_args(TieRule))
    choose_name("keep", keep, get_args(Keep))
    choose_name("rounding", rounding, get_args(Rounding))
    if propose is not None:
        choose_name("propose", propose, get_args(Propose))
    rtol_exact = check_rtol_exact(rtol_exact)
    problem = Problem.ask(
        model,
        tokens,
        query=query,
        target=target,
        symbols=symbols,
        positions=positions,
        include_query=include_query,
        vocab_size=vocab_size,
        radius=radius,
        dtype=dtype,
        mesh=mesh,
        memory_limit=memory_limit,
        shared=shared,
        precision=precision,
    )
    stopping = Stopping(
        rtol, budget, None if checkpoint is None else os.fspath(checkpoint)
    )
    if method not in SCREENS:
        for name, value, default in (("rtol", rtol, 0.0), ("budget", budget, 32)):
            refuse_unread(name, value, default, 'it is of method="screened"')
    # A proposal that is asked for is of a method.
    choice = choose_method(method, problem, keep=keep if propose is None else "pairs")
    asked = ties, keep, stopping, progress, rtol_exact, propose, rounding
    found = answer(problem, choice, *asked)
    if problem.precision is not None:
        found = dataclasses.replace(found, measured_error=measure_error(problem))
    return dataclasses.replace(found, seconds=time.perf_counter() - started)

"""`supremum`: the largest influence that any input of a length has.

The influence of a substitution is the norm of the change that one replaced symbol makes
at the query, the row whose output is watched. A plan evaluates all inputs, or searches
them, in blocks; the record of a block's result, its largest influence, is what a store
keeps. A configuration is one substitution on one input, or on all inputs with the same
classes of equal rows. A tie is ambiguous where rounding decides the winner of hard
attention.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, get_args

import numpy as np
from jaxtyping import Int

from bounds.all_inputs.ascent import RESTARTS, ROUNDS, AscentPlan
from bounds.all_inputs.counts import CountPlan, TooManyError, plan_counts
from bounds.all_inputs.universe import (
    AllInputs,
    Found,
    StringPlan,
    Universe,
    list_inputs,
    lump,
)
from bounds.curves.measurement import tokens_sha256
from bounds.influence.compute import compute_influence
from bounds.influence.result import Influence, Ties, judge_ties
from bounds.influence.targets.base import PlainTarget
from bounds.numbers.kind import ROUNDING, Kind, OfKind, kind_of
from bounds.numbers.notation import enclosure_label
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_hook, expect_integer
from jax_models.run.device_memory import PYTHON_STEP, require_operations
from jax_models.run.evaluate import TieRule

# Configurations (a count vector, an order, an exchange) that are evaluated at most, of four
# classes: two symbols without positions. A configuration of k classes costs (k / 4)^2.
BUDGET = 2**22
# The same where the supremum stands beside other numbers, at many lengths.
CURVE_BUDGET = 2**19
# Up to this length the input that is found is run again as it is, without classes.
RERUN_LENGTH = 1024

# Ways through the inputs, or some of them, in blocks of which repeated runs agree.
InputPlan: TypeAlias = CountPlan | StringPlan | AscentPlan


@dataclasses.dataclass(frozen=True)
class Supremum(OfKind):
    """Result of `supremum` and `search_inputs`: the largest influence over all inputs.

    After all inputs the supremum lies in [max_lower, max_upper], which differ by the
    rounding radius; it is exact, or an enclosure where the radius is above `RTOL_EXACT`
    times the supremum. After a search it is an estimate from below: `max_lower` is
    attained, and `max_upper` is infinite.
    """

    max: float
    max_lower: float
    max_upper: float
    kind: Kind  # exact | enclosure | estimated
    tokens: Int[np.ndarray, "tokens"]  # an input that attains the maximum
    position: int | None  # where it is changed; None where nothing can be
    symbol: int | None
    length: int
    query: int
    target: PlainTarget
    plan: str  # "counts", "inputs" or "search"
    reason: str  # what was gone through
    configurations: int  # how many were evaluated
    recomputed: float  # the influence of the named substitution, computed again
    recomputed_by: str  # by which method
    ties: Ties | None
    seconds: float
    hypotheses: tuple[str, ...] = (ROUNDING,)  # what the ends rest on

    def record(self) -> dict[str, Any]:
        """All fields, for a JSON file; of the ties only whether any is ambiguous."""
        own = {x: y for x, y in vars(self).items() if x not in ("length", "ties")}
        return {
            "n": self.length,
            **own,
            "rtol_exact": self.rtol_exact,
            "exact": self.exact,
            "tokens_sha256": tokens_sha256(self.tokens),
            "ambiguous": self.ties is not None and self.ties.ambiguous,
        }

    def __repr__(self) -> str:
        """One line: the maximum, where it is, and the plan that found it."""
        kind = "estimated from below" if self.estimated else self.kind
        upper = self.max if self.estimated else self.max_upper
        maximum = enclosure_label(self.max, self.max_lower, upper)
        return (
            f"Supremum(max={maximum} [{kind}], position={self.position}, "
            f"symbol={self.symbol}, length={self.length}, query={self.query}, "
            f"plan={self.plan!r})"
        )


def supremum(
    model: Transformer,
    length: int,
    *,
    query: int | None = None,
    target: PlainTarget = "activation",
    budget: int = BUDGET,
    ties: TieRule = "error",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Supremum:
    """Returns the largest influence of one symbol over all inputs of a length.

    sup over x, i != q, s of |y_q(x with x_i := s) - y_q(x)|_2, which Lemma 5 bounds, in
    the units of the activations (or of the logits). Inputs are those whose tokens are
    substitutable everywhere but at the query; there stands one that is not (an end or
    query token), if the model has such, else any. In
    unmasked models whose positions have few different encodings inputs are classes with
    counts, and all count vectors are gone through (for two symbols without positions, n
    of them); exact, up to the stated rounding. Beyond the budget, and for other models,
    it is a search (`search_inputs`), marked as an estimate.

    Args:
        model: a transformer.
        length: n.
        query: watched row, from either end; by default that of a head, else the last.
        target: "activation" (final activations) or "logits".
        budget: configurations of four classes (two symbols without positions) that are
            evaluated at most for an exact answer; one of k classes counts (k / 4)^2.
        ties: what to do where rounding decides a hard-attention winner on some input:
            "error", "warn" or "ignore".
        seed: of the search.
        progress: called with (blocks done, all) after every block.

    Returns:
        A `Supremum`.

    Raises:
        InputError: for a question that does not fit the model.
        TieError: for an ambiguous tie under ties="error".

    Source:
        docs/lumped.md.
    """
    inputs = list_inputs(model, length, query, target)
    return _go_through(choose_plan(inputs, budget, seed), ties, progress)


def search_inputs(
    model: Transformer,
    length: int,
    *,
    query: int | None = None,
    target: PlainTarget = "activation",
    restarts: int = RESTARTS,
    rounds: int = ROUNDS,
    ties: TieRule = "error",
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Supremum:
    """Returns a large influence that some input of a length has: an estimate.

    A lower bound of the supremum over all inputs, for models of any weighting, mask and
    position encoding; the influence returned is exact for the input returned. From
    random inputs: discrete coordinate ascent over the tokens, and from every second one
    an ascent over mixtures of tokens (Adam, projected to the simplex) before it.

    Args:
        model: a transformer.
        length: n.
        query: watched row, from either end; by default that of a head, else the last.
        target: "activation" (final activations) or "logits".
        restarts: inputs that are started from.
        rounds: of coordinate ascent from each, at most.
        ties: what an ambiguous tie of hard attention is: "error", "warn" or "ignore".
        seed: restart r is drawn from it and r alone.
        progress: called with (restarts done, all) after every restart.

    Returns:
        A `Supremum` whose kind is "estimated", with an infinite `max_upper`.

    Raises:
        InputError: for a question that does not fit the model.
        TieError: for an ambiguous tie under ties="error".
    """
    inputs = list_inputs(model, length, query, target)
    expect_integer("restarts", restarts, 1)
    expect_integer("rounds", rounds, 1)
    require_operations(f"a search of {restarts} restarts", PYTHON_STEP * restarts)
    expect_integer("seed", seed, 0)
    return _go_through(AscentPlan(inputs, seed, restarts, rounds), ties, progress)


def _go_through(
    plan: InputPlan, ties: TieRule, progress: Callable[[int, int], None] | None
) -> Supremum:
    """Supremum of a plan, block by block; its largest influence is computed twice."""
    choose_name("ties", ties, get_args(TieRule))
    expect_hook("progress", progress)
    started, blocks = time.perf_counter(), []
    for block in range(plan.num_blocks):
        # Merged at once: each holds tokens of length n.
        found = run_block(plan, block, ties)
        blocks = [blocks[0].merge(found)] if blocks else [found]
        if progress is not None:
            progress(block + 1, plan.num_blocks)
    return conclude(plan, blocks, ties, time.perf_counter() - started)


def exact_supremum(
    model: Transformer,
    length: int,
    *,
    query: int | None,
    target: PlainTarget,
    ties: TieRule = "error",
) -> Supremum:
    """Returns the supremum over all inputs of a length, if it is exact at little cost.

    Args:
        model: a transformer without masks.
        length: n.
        query: the row that is watched, as in `supremum`.
        target: "activation" or "logits".
        ties: what an ambiguous tie is: "error", "warn" or "ignore".

    Raises:
        InputError: As in `supremum`, and where it is beyond `CURVE_BUDGET`.
    """
    inputs = list_inputs(model, length, query, target)
    plan = choose_plan(inputs, CURVE_BUDGET, 0)
    if isinstance(plan, AscentPlan):
        raise InputError(f"the supremum over all inputs cannot be had: {plan.why}")
    return _go_through(plan, ties, None)


def choose_plan(inputs: AllInputs, budget: int, seed: int) -> InputPlan:
    """Plan to evaluate all inputs: exact within the budget, else a search."""
    expect_integer("budget", budget, 1)
    expect_integer("seed", seed, 0)
    universe = lump(inputs)
    if isinstance(universe, str):
        return AscentPlan(inputs, seed, why=universe)
    why = f"it takes more than the budget of {budget} configurations; with more it is exact"
    classes = universe.places.count * len(universe.symbols) + 2
    # The budget counts configurations of four classes; one of k classes costs (k / 4)^2.
    budget = budget * 16 // classes**2
    search = AscentPlan(universe, seed, why=why)
    try:
        plan = plan_counts(universe, budget)
    except TooManyError:
        return search
    if plan is not None:
        return plan
    substitutions = universe.length * (len(universe.symbols) - 1)
    if universe.num_inputs * substitutions <= budget:
        return StringPlan(universe)
    return search


def run_block(plan: InputPlan, block: int, ties: TieRule) -> Found:
    """Largest influence of a block of inputs; `ties` judges an ambiguous tie met there."""
    found, universe = plan.run(block), plan.universe
    where = f"on some input of length {universe.length}"
    judge_ties(universe.model, found.ties, where, ties)
    return found


def conclude(
    plan: InputPlan, blocks: Sequence[Found], ties: TieRule, seconds: float
) -> Supremum:
    """Supremum from a plan's finished blocks; computes its influence a second time."""
    universe = plan.universe
    asked = universe.length, universe.query, universe.target, plan.name
    # Nothing can be substituted.
    if not blocks:
        tokens = np.full(universe.length, universe.symbols[0], np.int32)
        tokens[universe.query] = universe.query_symbols[0]
        kind = "exact" if plan.exact else "estimated"
        nothing = (*asked, "nothing can be changed", 0, 0.0, "none", None, seconds)
        return Supremum(0.0, 0.0, 0.0, kind, tokens, None, None, *nothing)
    found = functools.reduce(Found.merge, blocks)
    # A fault of the program shows where a second computation has another influence.
    again = _run_again(universe, found, ties)
    meet = again.max_lower <= found.max_upper and found.max_lower <= again.max_upper
    # Where rounding decides a winner, two methods may decide for different ones.
    if not meet and (found.ties is None or not found.ties.ambiguous):
        raise RuntimeError(
            f"the influence {found.max!r} of position {found.position}, symbol "
            f"{found.symbol} is {again.max!r} by {again.method}"
        )
    ends = found.max, found.max_lower, found.max_upper
    kind = kind_of(*ends)
    if not plan.exact:
        ends, kind = (*ends[:2], math.inf), "estimated"
    where = found.tokens, found.position, found.symbol
    made = plan.description, found.evaluated, again.max, again.method
    return Supremum(*ends, kind, *where, *asked, *made, found.ties, seconds)


def _run_again(universe: AllInputs, found: Found, ties: TieRule) -> Influence:
    """Influence of `found`'s substitution on its input, by `compute_influence`."""
    lumps = isinstance(universe, Universe)
    return compute_influence(
        universe.model,
        found.tokens,
        method="lumped" if lumps and universe.length > RERUN_LENGTH else "exhaustive",
        **universe.watched,
        positions=[found.position],
        symbols=[found.symbol],
        ties="ignore" if ties == "warn" else ties,
    )


def record_found(found: Found) -> dict[str, Any]:
    """Record of a `Found`, a block's largest influence, as JSON can hold it."""
    ties = None if found.ties is None else dataclasses.asdict(found.ties)
    return {**vars(found), "ties": ties}


def read_found(record: dict[str, Any]) -> Found:
    """Block's largest influence, a `Found`, from its record."""
    ties = record["ties"]
    if ties is not None:
        # An infinite gap, where nothing was compared, is null in JSON.
        gap = np.inf if ties["gap"] is None else ties["gap"]
        scores = tuple(np.nan if x is None else x for x in ties["scores"])
        ties = Ties(**{**ties, "gap": gap, "scores": scores})
    tokens = np.asarray(record["tokens"], np.int32)
    return Found(**{**record, "tokens": tokens, "ties": ties})


def conclude_records(
    plan: InputPlan, records: Sequence[dict[str, Any]], ties: TieRule, seconds: float
) -> Supremum:
    """Supremum from stored records of a plan's blocks; `ValueError` if one is damaged."""
    blocks = list(map(read_found, records))
    try:
        return conclude(plan, blocks, ties, seconds)
    except RuntimeError as error:
        raise ValueError(str(error)) from error


def describe_supremum(best: Supremum) -> str:
    """Sentence on the maximum and the substitution that attains it."""
    if best.position is None:
        return f"n = {best.length}: no input can be changed."
    where = (
        f"attained at position {best.position}, symbol {best.symbol}; recomputed by "
        f"{best.recomputed_by}: {best.recomputed:.10g}"
    )
    if best.estimated:
        return (
            f"n = {best.length}: an estimate from below of the maximum influence over "
            f"all inputs is {best.max:.6g}, {where}."
        )
    maximum = enclosure_label(best.max, best.max_lower, best.max_upper)
    return (
        f"n = {best.length}: the maximum influence over all inputs is {maximum}, "
        f"{best.kind}, {where}."
    )

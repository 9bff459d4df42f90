"""`compute_influence`: change of one output row by each substitution of a token."""

from collections.abc import Sequence
from typing import Any, get_args

from bounds.influence.answer import answer, of_each_input
from bounds.influence.build import build_request
from bounds.influence.choice import Keep, precision_of
from bounds.influence.inputs.callable import Callable as Function
from bounds.influence.method import Rounding, Run, Way, check_run
from bounds.influence.result import Influence
from bounds.influence.substitution import Symbols
from bounds.influence.targets.table import Watched
from jax_models import Transformer
from jax_models.arguments import choose_name, refuse_unread
from jax_models.run.evaluate import TieRule


@of_each_input
def compute_influence(
    model: Transformer | Function,
    tokens: Any,
    *,
    method: Way | str = "auto",
    query: int | None = None,
    target: Watched = "activation",
    symbols: Symbols | None = None,
    positions: Sequence[int] | None = None,
    include_query: bool = False,
    ties: TieRule = "error",
    rounding: Rounding = "auto",
    dtype: Any = None,
    keep: Keep | None = None,
    run: Run | None = None,
) -> Influence:
    """Exact influence of every single-symbol substitution on the query row.

        influence(i, s) = |y_q(x with x_i := s) - y_q(x)|_2

    over all positions i != q and symbols s != x_i, y_q the target at the query row q,
    in the target's units. The largest, or all (`rounding`), come with a radius of
    rounding. Where that of the maximum is more than 1 % of the maximum, the answer is
    an enclosure, not exact. For a function without parameters the answer is estimated,
    unless a radius is stated; so are answers in half precision.

    Args:
        model: a transformer, or a `Callable`, to which only `exhaustive` applies.
        tokens: integers in [0, V) [n]; or many inputs, [K, n] or a list of any lengths.
        method: "auto" (the cheapest exact one), or a name or value of "lumped"
            `Lumped()` (classes of equal rows), "incremental" `Incremental()` (change
            propagation), "screened" `Screened()` (enclosures of all, and the exact
            maximum where they close; "auto" takes it with keep="max" alone, and
            enumerates what is left), "exhaustive" `Exhaustive()` (a pass for each),
            "partial" `Partial()` (passes of the rows that can change and are read); or
            `Proposed()` (in a cheap precision first).
        query: the row that is watched, negative counting from the end; by default that
            of a classifier's head, else the last.
        target: "activation" (final activations), "logits", another name of
            docs/targets.md, or a value: a `Target`, such as `LogProbability(3)`, or
            one's own function. A target of several rows together leaves `query`
            unused, and every token is changed.
        symbols: substitute symbols; by default all that the model's `substitutable`
            allows. Or [P, K] padded with -1: row p are those of the p-th of P
            positions.
        positions: positions that are changed; all by default.
        include_query: whether the query's own token is changed too.
        ties: what to do where rounding decides a hard-attention winner: "error", "warn"
            or "ignore".
        rounding: "all" gives every result a radius of rounding, by four more runs with
            moved inputs; "top" those of a block with the largest, and the others are
            estimated; "none" estimates. "auto" is all where that takes about a second
            of one core, and top beyond; for a `Callable` with a radius, that radius.
        dtype: asserts the float type; "float64" without x64 is an error.
        keep: "pairs", the default, keeps the tables [n, V]; "position_max" only maxima
            [n], "max" the maximum alone.
        run: devices, memory, checkpoint and progress (`Run`).

    Returns:
        An `Influence`; of many inputs a list of them.

    Raises:
        InputError: for anything in the question that does not fit the model.
        TieError: for an ambiguous tie under ties="error".
        TypeError: for a keyword that is now an option of a method or of `Run`.
    """
    keep, run = "pairs" if keep is None else keep, check_run(run)
    choose_name("keep", keep, get_args(Keep))
    request = build_request(
        model,
        tokens,
        query=query,
        target=target,
        symbols=symbols,
        positions=positions,
        include_query=include_query,
        dtype=dtype,
        run=run,
        precision=precision_of(method),
    )
    if request.target_value.is_joint:
        why = f"target = {request.target} reads rows of its own"
        refuse_unread("query", query, None, why)
        refuse_unread("include_query", include_query, False, why)
    return answer(request, method, ties, keep, run, rounding)

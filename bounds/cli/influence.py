"""The influence of every position and symbol of one input on one model.

`influence.csv` lists every substitution with the change of the output it makes;
`influence.json` the largest; the figure shows the largest at each position. Long inputs
are done in blocks of positions, and what is found is kept in --out every ten seconds or
so: the same command continues where it stopped.

    --length=512 --num_layers=2 --out=results/random
    --model=checkpoint --sequence=MKTAYIAK --query=3 --target=logits --out=results/mine
"""

import dataclasses
from typing import Any

import numpy as np

from bounds.cli.in_parts import Joined, work_in_parts
from bounds.cli.parts import Asked, read_asked
from bounds.cli.shared.groups import Figure, Incremental, Method, OneInput, Query
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Rows, Work
from bounds.curves.measurement import block_columns, enclosed_value
from bounds.figures.inputs import influence_figure, sequence_figure
from bounds.influence import Influence, Screened
from bounds.influence.choice import SCREENS
from bounds.influence.methods.proposed import Cheap
from bounds.influence.result import said_of
from bounds.influence.table.lines import SYMBOL_NAMES
from bounds.influence.targets.table import TARGETS
from bounds.numbers.kind import RTOL_EXACT, kind_of_ends
from bounds.numbers.notation import enclosure_label
from bounds.rounding.ranked import MARGIN

SCREENED: dict[str, Any] = {
    "used_if": lambda one: one.method == "screened" and one.propose is None,
    "otherwise": "is of --method=screened; leave it out",
}
OF_ONE_ROW: dict[str, Any] = {
    "used_if": lambda one: not TARGETS[one.target.partition(":")[0]].is_joint,
    "otherwise": "is of one row, and --target reads rows of its own; leave it out",
}


class InfluenceOptions(OneInput, Query, Method, Incremental, Figure):
    """Options of the command."""

    query: int | None = again(Query, "query", None, **OF_ONE_ROW)
    include_query: bool = option(
        False, "Substitute the query's own token too.", **OF_ONE_ROW
    )
    rtol: float = option(
        Screened.rtol,
        "Of --method=screened: stop when the maximum is enclosed this closely, upper / "
        "lower - 1.",
        least=0.0,
        **SCREENED,
    )
    budget: int = option(
        Screened.budget or 0,
        "Of --method=screened: the most exact evaluations; 0 is as many as it takes.",
        least=0,
        **SCREENED,
    )
    propose: str | None = option(
        None,
        "Compute all in this float type first, and in float64 those that may be the "
        "largest. After float32 the maximum is the same, and the ends of the others are "
        "wider; after a half precision, whose errors are measured, not bounded, the value "
        "is exact, that it is the maximum is estimated, and the others are estimates.",
        Cheap,
    )


COLUMNS = ("position", "symbol", "lower", "upper", "kind")
# Columns on the largest influence.
SUMMARY = (
    *("max", "max_lower", "max_upper", "position", "symbol"),
    *("evaluated", "uncertified", "decided"),
)


def plan(options: InfluenceOptions) -> Work:
    """Work that computes the influences of all substitutions, in parts of positions."""

    def ask() -> list[Asked]:
        asked = read_asked(options)
        return [dataclasses.replace(asked, include_query=options.include_query)]

    export = lambda found: _export(*found)
    return work_in_parts(options, ask=ask, export=export, row=describe)


def describe(found: Joined) -> dict[str, Any]:
    """Columns on the largest influence."""
    result = found.result
    return {
        "query": result.query,
        **{name: getattr(result, name) for name in SUMMARY},
        **block_columns(result.block),
        "exact": result.exact,
        **found.columns,
    }


def _export(found: Joined) -> Exports:
    """Record, report, rows and figure."""
    asked, result, record = found.asked, found.result, describe(found)
    tokenizer, rows = asked.tokenizer, _rows(found)
    columns = COLUMNS if tokenizer is None else (*COLUMNS, *SYMBOL_NAMES)
    screens = result.method in SCREENS

    def figure() -> Any:
        largest: dict[int, tuple[float, int]] = {}
        for row in rows:
            value = enclosed_value(row["lower"], row["upper"], screens)
            position, symbol = row["position"], row["symbol"]
            if value > largest.get(position, (-1.0, 0))[0]:
                largest[position] = value, symbol
        influences = {position: value for position, (value, _) in largest.items()}
        what = "upper bound on the influence" if screens else "largest influence"
        what += "" if result.exact else f", {result.kind}"
        quantity = f"{what} ({asked.target.label})"
        query = None if asked.target.is_joint else result.query
        if tokenizer is None:
            return influence_figure(influences, quantity, query)
        names = [tokenizer.name(int(token)) for token in asked.tokens]
        best = [tokenizer.name(symbol) for _, symbol in largest.values()]
        return sequence_figure(influences, names, best, quantity, query)

    record |= {
        "hypotheses": list(result.hypotheses),
        "rtol_exact": RTOL_EXACT,
        "seconds": found.seconds,
        "levels": list(map(dataclasses.asdict, result.levels)),
        **asked.names(result.position, result.symbol),
    }
    report = influence_finding(asked, result)
    return Exports(record, report, columns, rows, figure, ties=int(found.ambiguous > 0))


def _rows(found: Joined) -> Rows:
    """Rows of the substitutions found, by position, then symbol."""
    result, asked = found.result, found.asked
    if result.lower is not None:
        of: Any = (result.lower, result.upper, result.enclosed)
        position, symbol = at = np.nonzero(~np.isnan(result.lower))
    else:
        of = (result.position_lower, result.position_upper, result.position_enclosed)
        symbols: Any = result.position_symbol
        position = at = np.flatnonzero(symbols >= 0)
        symbol = symbols[position]
    columns = (x.tolist() for x in (position, symbol, *(x[at] for x in of)))
    rows: Rows = []
    for p, s, lower, upper, known in zip(*columns, strict=True):
        kind = kind_of_ends(lower, upper, known)
        rows.append(dict(zip(COLUMNS, (p, s, lower, upper, kind), strict=True)))
        rows[-1] |= asked.names(p, s)
    return rows


def influence_finding(asked: Asked, result: Influence) -> str:
    """Sentence or two on the largest influence."""
    begun = f"n = {len(asked.tokens)}"
    if result.position is None:
        return f"{begun}: nothing can be substituted."
    where, output = asked.place(result.position, result.symbol), asked.target.noun
    if not asked.target.is_joint:
        output += f" {asked.place(result.query)}"
    maximum = enclosure_label(result.max, result.max_lower, result.max_upper)
    method, decided, error = result.method, result.decided, result.measured_error
    cheap = getattr(asked.subject.question.method, "precision", None)
    if result.estimated and decided is not None:
        return (
            f"{begun}: the largest influence of {decided} decided in float64 is "
            f"{maximum}, by {method}, {where}, on {output}. The {result.uncertified} "
            f"others are estimated in {cheap}, and below it by {MARGIN} times the "
            f"largest error of the estimates decided{said_of(error)}."
        )
    maximum += f", {result.kind} by {method}"
    if decided is not None:
        maximum += f" ({decided} decided in float64 after {cheap})"
    elif result.estimated:
        maximum = f"{result.max:.6g}, estimated by {method}"
    if result.uncertified:
        return (
            f"{begun}: the maximum influence lies between {result.max_lower:.6g} and "
            f"{result.max_upper:.6g}; {result.uncertified} substitutions are not known to "
            f"be below the largest that was evaluated ({result.max:.6g}, {where}, on "
            f"{output}). A larger --budget narrows it, and --budget=0 closes it."
        )
    return (
        f"{begun}: the maximum influence is {maximum}, {where}, on "
        f"{output}{said_of(error)}."
    )

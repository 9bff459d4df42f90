"""The influence of every position and symbol of one input on one model.

`influence.csv` lists every substitution with the change of the output it makes;
`influence.json` the largest; the figure shows the largest at each position. Long inputs
are done in blocks of positions, and what is found is kept in --out every ten seconds or
so: the same command continues where it stopped.

    --length=512 --num_layers=2 --out=results/random
    --model=checkpoint --sequence=MKTAYIAK --query=3 --target=logits --out=results/mine
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bounds.cli.influence_parts import AskedInfluence, FoundInfluence, InfluenceParts
from bounds.cli.parts import InParts, error_columns
from bounds.cli.shared.groups import Figure, Incremental, Method, OneInput, Query
from bounds.cli.shared.input_source import open_tokenizer
from bounds.cli.shared.options import again, option
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.runner import Exports, Rows, Work
from bounds.cli.shared.subject import read_one
from bounds.cli.shared.target import read_substitutes, unit_of
from bounds.curves.measurement import block_columns, enclosed_value
from bounds.figures.inputs import influence_figure, sequence_figure
from bounds.influence import Screened
from bounds.influence.methods.proposed import Cheap
from bounds.influence.result import MeasuredError, said_of
from bounds.influence.table.lines import SYMBOL_NAMES
from bounds.influence.targets.table import TARGETS, as_value
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
    *("max", "max_lower", "max_upper", "position", "symbol", "method", "reason"),
    *("evaluated", "uncertified", "decided"),
)


def plan(options: InfluenceOptions) -> Work:
    """Work that computes the influences of all substitutions, in parts of positions."""

    def row(found: FoundInfluence) -> dict[str, Any]:
        left_out = ("levels", "hypotheses", "rtol_exact", "seconds", *SYMBOL_NAMES)
        return {x: y for x, y in _record(found).items() if x not in left_out}

    return InParts(
        ask=lambda: [_ask(options)],
        plan=InfluenceParts.plan,
        export=lambda found: _export(options, *found),
        row=row,
    ).work(options)


def _ask(options: InfluenceOptions) -> AskedInfluence:
    prepare_jax(options)
    subject = read_one(options)
    (tokens,) = subject.inputs.values()
    length = tokens.size
    question = subject.question
    question = dataclasses.replace(question, query=question.query % length)
    tokenizer = open_tokenizer(options)
    symbols = read_substitutes(options, subject.model, tokenizer, length)
    if symbols is not None:  # a set: its order must not change the store's key
        symbols = np.sort(symbols, axis=-1)
    return AskedInfluence(
        subject=dataclasses.replace(subject, question=question),
        include_query=options.include_query,
        folder=Path(options.out),
        tokenizer=tokenizer,
        symbols=symbols,
        rounding=options.rounding,
    )


def _record(found: FoundInfluence) -> dict[str, Any]:
    """Entries of `influence.json` on the largest influence."""
    asked, result = found.asked, found.result
    return {
        "n": len(asked.tokens),
        "query": asked.subject.question.query,
        **{name: getattr(result, name) for name in SUMMARY},
        **block_columns(result.block),
        "exact": result.exact,
        "kind": result.kind,
        "rounding": result.rounding,
        "hypotheses": list(result.hypotheses),
        "levels": [dataclasses.asdict(level) for level in result.levels],
        "ambiguous": found.ambiguous > 0,
        **asked.names(result.position, result.symbol),
        "model_sha256": asked.subject.model_sha256,  # before the weighting
        **asked.hashes,
        **error_columns(result.measured_error),
        "rtol_exact": RTOL_EXACT,
        "seconds": found.seconds,
    }


def _export(options: InfluenceOptions, found: FoundInfluence) -> Exports:
    asked, record, rows = found.asked, _record(found), _rows(found)
    columns = COLUMNS if asked.tokenizer is None else (*COLUMNS, *SYMBOL_NAMES)

    def figure() -> Any:
        largest: dict[int, tuple[float, int]] = {}
        for row in rows:
            value = enclosed_value(row["lower"], row["upper"], asked.screens)
            position, symbol = row["position"], row["symbol"]
            if value > largest.get(position, (-1.0, 0))[0]:
                largest[position] = value, symbol
        influences = {position: value for position, (value, _) in largest.items()}
        what = "upper bound on the influence" if asked.screens else "largest influence"
        what += "" if record["exact"] else f", {record['kind']}"
        quantity = f"{what} ({unit_of(options.target)})"
        query = None if asked.watches_all else record["query"]
        if asked.tokenizer is None:
            return influence_figure(influences, quantity, query)
        names = [asked.tokenizer.name(int(token)) for token in asked.tokens]
        best = [asked.tokenizer.name(symbol) for _, symbol in largest.values()]
        return sequence_figure(influences, names, best, quantity, query)

    report = influence_finding(asked, record, found.result.measured_error)
    ties = int(record["ambiguous"])
    return Exports(record, report, columns, rows, figure, ties=ties)


def _rows(found: FoundInfluence) -> Rows:
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


def influence_finding(
    asked: AskedInfluence, record: Mapping[str, Any], error: MeasuredError | None
) -> str:
    """Sentence or two on the largest influence."""
    if record["position"] is None:
        return f"n = {record['n']}: nothing can be substituted."
    old = new = at = ""
    if asked.tokenizer is not None:
        old, new = f" ({record['wild_type']})", f" ({record['symbol_name']})"
        at = f" ({asked.tokenizer.name(int(asked.tokens[record['query']]))})"
    where = f"at position {record['position']}{old}, symbol {record['symbol']}{new}"
    output = as_value(asked.subject.question.target).noun
    if not asked.watches_all:
        output += f" at position {record['query']}{at}"
    ends = [record[name] for name in ("max", "max_lower", "max_upper")]
    maximum = f"{enclosure_label(*ends)}, {record['kind']} by {record['method']}"
    decided = record["decided"]
    if decided is not None and record["kind"] == "estimated":
        left = f"{record['uncertified']} others are estimated in {asked.cheap}"
        return (
            f"n = {record['n']}: the largest influence of {decided} decided in float64 is "
            f"{enclosure_label(*ends)}, by {record['method']}, {where}, on {output}. The "
            f"{left}, and below it by {MARGIN} times the largest error of the estimates "
            f"decided{said_of(error)}."
        )
    if decided is not None:
        maximum += f" ({decided} decided in float64 after {asked.cheap or 'float32'})"
    if decided is None and record["kind"] == "estimated":
        maximum = f"{record['max']:.6g}, estimated by {record['method']}"
    if record["uncertified"]:
        return (
            f"n = {record['n']}: the maximum influence lies between "
            f"{record['max_lower']:.6g} and {record['max_upper']:.6g}; "
            f"{record['uncertified']} substitutions are not known to be below the "
            f"largest that was evaluated ({record['max']:.6g}, {where}, on {output}). "
            "A larger --budget narrows it, and --budget=0 closes it."
        )
    return (
        f"n = {record['n']}: the maximum influence is {maximum}, {where}, on "
        f"{output}{said_of(error)}."
    )

"""Sentences of the command `influence` on its result."""

from collections.abc import Mapping
from typing import Any

from bounds.cli.influence_question import Asked
from bounds.influence.result import MeasuredError, said_of
from bounds.influence.targets.table import as_value
from bounds.numbers.notation import enclosure_label
from bounds.rounding.ranked import MARGIN

ENDS = ("max_lower", "max_upper")


def finding(
    asked: Asked, record: Mapping[str, Any], error: MeasuredError | None
) -> str:
    """Result in one sentence or two."""
    if record["position"] is None:
        return f"n = {record['n']}: nothing can be substituted."
    where = f"at position {record['position']}, symbol {record['symbol']}"
    output = as_value(asked.subject.question.target).noun
    if not asked.watches_all:
        output += f" at position {record['query']}"
    if asked.tokenizer is not None:
        where = (
            f"at position {record['position']} ({record['wild_type']}), symbol "
            f"{record['symbol']} ({record['symbol_name']})"
        )
        if not asked.watches_all:
            output += f" ({asked.tokenizer.name(int(asked.tokens[record['query']]))})"
    ends = [record[name] for name in ("max", *ENDS)]
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

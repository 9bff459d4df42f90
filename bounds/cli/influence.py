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

from jax.sharding import Mesh

from bounds.cli.shared.groups import Figure, Incremental, Method, OneInput, Query
from bounds.cli.shared.in_parts import Joined, Planned, read_asked, work_in_parts
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work
from bounds.curves.measurement import block_columns, influence_peaks
from bounds.figures.inputs import influence_figure, sequence_figure
from bounds.influence import Screened
from bounds.influence.methods.proposed import Cheap
from bounds.influence.report import COLUMNS, influence_finding, influence_rows
from bounds.influence.table.lines import SYMBOL_NAMES
from bounds.influence.targets.table import TARGETS
from bounds.numbers.kind import RTOL_EXACT

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


# Columns on the largest influence.
SUMMARY = (
    *("max", "max_lower", "max_upper", "position", "symbol"),
    *("evaluated", "uncertified", "decided"),
)


def plan(options: InfluenceOptions) -> Work:
    """Work that computes the influence of every substitution, by blocks of positions."""

    def ask(mesh: Mesh | None) -> list[Planned]:
        asked = dataclasses.replace(
            read_asked(options), include_query=options.include_query
        )
        return [(asked, asked.plan(mesh))]

    export = lambda found: _export(*found)
    return work_in_parts(options, ask=ask, export=export, row=describe)


def describe(found: Joined) -> dict[str, Any]:
    """Row of one input in a sweep (runs of `batch`): its largest influence and method."""
    result = found.result
    return {
        "query": result.query,
        **{name: getattr(result, name) for name in SUMMARY},
        **block_columns(result.block),
        "exact": result.exact,
        **found.columns,
    }


def _export(found: Joined) -> Exports:
    """Record, report, rows and figure of the influences of one input."""
    asked, result, record = found.asked, found.result, describe(found)
    tokenizer, rows = asked.tokenizer, influence_rows(result, asked.words)
    columns = COLUMNS if tokenizer is None else (*COLUMNS, *SYMBOL_NAMES)

    def figure() -> Any:
        influences, quantity = influence_peaks(result)
        query = None if asked.target.is_joint else result.query
        if tokenizer is None:
            return influence_figure(influences, quantity, query)
        tokens, best = asked.tokens, result.position_symbol[list(influences)]
        names, new = (list(map(tokenizer.name, x.tolist())) for x in (tokens, best))
        return sequence_figure(influences, names, new, quantity, query)

    record |= {
        "hypotheses": list(result.hypotheses),
        "rtol_exact": RTOL_EXACT,
        "seconds": found.seconds,
        "levels": list(map(dataclasses.asdict, result.levels)),
        **asked.words.names(result.position, result.symbol),
    }
    cheap = getattr(asked.subject.question.method, "precision", None)
    report = influence_finding(result, asked.words, cheap)
    return Exports(record, report, columns, rows, figure, ties=int(found.ambiguous > 0))

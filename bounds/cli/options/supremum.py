"""The largest influence of one symbol over all inputs of a length.

`supremum.json` names the maximum and an input, position and symbol that attain it. It is
exact for a model without masks whose positions have few different encodings, where all
count vectors (with orders, for unique-hard attention) are at most --configurations, and
otherwise a search over inputs, marked as an estimate. Blocks of the work are kept in --out
as they are done: the same command continues where it stopped.
"""

import dataclasses

from bounds.cli.shared.groups import Model, Read, Shape, Stored, Ties, Weighted
from bounds.cli.shared.options import again, option
from bounds.cli.shared.values import IntegersParser


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupremumOptions(Weighted, Model, Read, Ties, Stored):
    """Options of the command."""

    COMMAND = "supremum"

    length: int = option(64, "Tokens n of the inputs, the query's included.", least=1)
    query_symbols: tuple[int, ...] | None = option(
        None,
        "Tokens at the query; by default those that are not substitutable, if the model "
        "has such, else all.",
        parser=IntegersParser("symbols as integers"),
    )
    include_query: bool = option(False, "Substitute the query's own token too.")
    configurations: int = option(
        "bounds.all_inputs.supremum:BUDGET",
        "Configurations (a count vector, an order, an exchange) that are evaluated at "
        "most for an exact answer; one of k classes counts (k / 4)^2. Beyond them it is a "
        "search.",
        least=1,
    )
    # Under a mask, or at positions that are all different, rows are not equal.
    mask: str = again(Shape, "mask", "none")
    position: str = again(Shape, "position", "none")

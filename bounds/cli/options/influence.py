"""The influence of every position and symbol of one input on one model.

`influence.csv` lists every substitution with the change of the output it makes;
`influence.json` the largest; the figure shows the largest at each position. Long inputs
are done in blocks of positions, and what is found is kept in --out every ten seconds or
so: the same command continues where it stopped.
"""

import dataclasses

from bounds.cli.shared.groups import (
    Figure,
    Incremental,
    Method,
    OneInput,
    Proposed,
    Query,
    Screened,
)
from bounds.cli.shared.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class InfluenceOptions(
    OneInput, Query, Method, Screened, Incremental, Proposed, Figure
):
    """Options of the command."""

    COMMAND = "influence"

    include_query: bool = option(False, "Substitute the query's own token too.")

"""The average sensitivity against n: how many symbols of an input decide its sign.

At every length the mean, over uniform inputs, of the number of positions at which a
substitution changes the sign of the model's decision: its accept rule, its only logit, or
the difference of its two. A random model has two logits. Up to 2^16 inputs all are listed
and the mean is exact; beyond that --num_inputs are sampled, each counted exactly by a scan
of all its neighbours, and the mean has a 95 % interval. Results are kept in --out as they
are found, and the same command continues where it stopped.
"""

import dataclasses

from bounds.cli.shared.groups import (
    Figure,
    Lengths,
    Memory,
    Model,
    Query,
    Stored,
    Ties,
    Weighted,
)
from bounds.cli.shared.options import again, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class SensitivityOptions(Lengths, Weighted, Model, Query, Ties, Memory, Stored, Figure):
    """Options of the command."""

    COMMAND = "sensitivity"

    lengths: tuple[int, ...] = again(Lengths, "lengths", "4:1024:9")
    form: str = option(
        "sign",
        "What is counted: sign counts positions, real is 1/4 of the sum of squared "
        "changes, of values in [-1, 1] over two symbols.",
        ("sign", "real"),
    )
    target: str | None = option(
        None,
        "The number whose sign is watched: {bounds.cli.shared.target:GRAMMAR}, of one "
        "entry; by default the model's decision.",
        check="bounds.cli.shared.target:check_grammar",
    )
    num_inputs: int = option(
        32, "Sampled inputs at each length with more than 2^16 inputs.", least=2
    )

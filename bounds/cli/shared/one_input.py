"""Options of commands on one input of a model: `influence` and `scan`."""

import dataclasses
from typing import Literal

from bounds.cli.shared.groups import (
    RUNNING,
    Cluster,
    Inputs,
    Memory,
    One,
    Stored,
    Texts,
    Weighted,
)
from bounds.cli.shared.options import option
from bounds.cli.shared.values import expect_name


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneInput(Weighted, Inputs, Texts, One, Memory, Stored, Cluster):
    """One input, its substitutes, the watched output, and its precision."""

    target: str = option(
        "activation",
        "What is watched of the output at the query: {bounds.cli.shared.target:GRAMMAR}; "
        "symbols S, T by name (with a tokenizer) or number. A sum is over rows from ROW "
        "(0) on, one a symbol; own and next are the input's symbols, at each row or "
        "behind it, special ones left out.",
        check="bounds.cli.shared.target:check_grammar",
    )
    symbols: tuple[str, ...] | None = option(
        None,
        "Symbols that are put in at every position, by name (with a tokenizer) or "
        "number, separated by commas; by default all that the model substitutes.",
        check=expect_name("symbols, separated by commas"),
    )
    candidates: str | None = option(
        None,
        "File of the symbols that are put in at each position: a line for each, symbols "
        "by name or number between spaces; or a NumPy file of integers (n, K), rows "
        "filled up with -1.",
        file=True,
    )
    rounding: Literal["auto", "all", "top", "none"] = option(
        "auto",
        "Which results have a radius of rounding, by four more runs with moved inputs: all, "
        "top, a block of the largest (the others are estimated), or none; auto is all where "
        "that takes about a second of one core, and top beyond.",
        "bounds.influence.method:Rounding",
    )
    dry_run: bool = option(
        False,
        "Check everything, say the method, the parts, the blocks and what they take, and "
        "stop: nothing is run or written.",
        **RUNNING,
    )

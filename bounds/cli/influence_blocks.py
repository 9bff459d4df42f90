"""One input's influences in blocks of positions, so that long work can be resumed."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jax.sharding import Mesh

import jax_models as jm
from bounds.cli.shared.precision import with_error
from bounds.cli.shared.progress import Progress
from bounds.cli.shared.target import target_key
from bounds.curves.measurement import Subject, block_columns, tokens_sha256
from bounds.influence import SCREENS, Influence, Problem, SharedBase
from bounds.influence.compute import answer, choose_method
from bounds.influence.exhaustive import EXHAUSTIVE
from bounds.influence.incremental import is_sparse
from bounds.influence.lumped import LUMPED
from bounds.influence.method import Stopping
from bounds.influence.row_targets import RowsTarget
from bounds.store.output import canonical_json, sha256
from bounds.store.sweep import Cell
from bounds.version import __version__

# Substitutions beyond which only the largest of each position is kept.
MAX_PAIRS = 2**18
# Entries [n, V] beyond which too, since tables are formed of all symbols.
MAX_TABLE = 2**24
COLUMNS = ("position", "symbol", "lower", "upper")
# Behind them, where a tokenizer names symbols.
NAMES = ("wild_type", "symbol_name")
# What is recorded of the largest influence, for each block and for the whole input.
SUMMARY = (
    "max",
    "max_lower",
    "max_upper",
    "position",
    "symbol",
    "method",
    "reason",
    "evaluated",
    "uncertified",
    "decided",
)
# The sizes that its method worked in.
BLOCK = ("block_substitutions", "block_rows")


@dataclasses.dataclass(frozen=True)
class Asked:
    """What the flags of `influence` ask: one input of a model, in blocks of positions.

    Attributes:
        subject: The model, its hash, the input, and what is asked, of a query counted
            from 0.
        include_query: Whether the query's own token is changed too.
        stopping: When a screen stops.
        folder: Where a screen keeps where it stands.
        tokenizer: What names symbols, of which the special ones stay where they stand;
            None where they are numbers.
        symbols: What is put in [K], or at each position [n, K], filled up with -1; None
            is all that the model substitutes.
        propose: The float type that all are computed in first; None leaves it open.
        keep: "max" where nothing but the maximum is read, else None.
    """

    subject: Subject
    include_query: bool
    stopping: Stopping
    folder: Path
    tokenizer: jm.Tokenizer | None = None
    symbols: np.ndarray | None = None
    propose: Literal["float32"] | None = None
    keep: Literal["max"] | None = None

    @property
    def tokens(self) -> np.ndarray:
        """The input [n]."""
        (tokens,) = self.subject.inputs.values()
        return tokens

    def named(self, position: int | None, symbol: int | None) -> dict[str, str | None]:
        """Returns the entries of `NAMES` of a substitution; none without a tokenizer."""
        if self.tokenizer is None or position is None or symbol is None:
            return {} if self.tokenizer is None else dict.fromkeys(NAMES)
        symbols = (int(self.tokens[position]), symbol)
        return dict(zip(NAMES, map(self.tokenizer.name, symbols), strict=True))

    @property
    def watches_all(self) -> bool:
        """Whether every row is watched, not that of the query."""
        return self.subject.question.target == "pooled" or isinstance(
            self.subject.question.target, RowsTarget
        )

    @property
    def screens(self) -> bool:
        """Whether the method encloses influences."""
        return self.subject.question.method in SCREENS

    @property
    def hashes(self) -> dict[str, str]:
        """What names the model and the input."""
        return {
            "model_sha256": self.subject.model_sha256,
            "weighting": self.subject.label,
            "tokens_sha256": tokens_sha256(self.tokens),
        }

    def problem(self, start: int, stop: int, **more: Any) -> Problem:
        """Returns the question about positions from `start` to before `stop`.

        Args:
            start: The first.
            stop: Behind the last.
            more: As `Problem.ask` takes it.
        """
        positions, symbols = np.arange(start, stop), self.symbols
        if self.tokenizer is not None:
            special = np.isin(self.tokens[positions], self.tokenizer.special)
            positions = positions[~special]
        if symbols is not None and symbols.ndim == 2:
            symbols = symbols[positions]
        return self.subject.question.ask(
            self.subject.model,
            self.tokens,
            positions=positions,
            symbols=symbols,
            include_query=self.include_query,
            **more,
        )

    def checkpoint(self, config: Mapping[str, Any]) -> Path | None:
        """Returns the file in which a screen keeps where it stands.

        Args:
            config: Of the cell that screens. How far the screen is to go names no other
                file: what was screened is used by a run that is to go further.

        Returns:
            A path in the folder; None where nothing is screened.
        """
        if not self.screens:
            return None
        question = {k: v for k, v in config.items() if k not in ("rtol", "budget")}
        name = sha256(canonical_json(question).encode())[:16]
        return self.folder / f"screen-{name}.npz"


def make_blocks(
    asked: Asked, progress: Progress | None, mesh: Mesh | None = None
) -> list[Cell]:
    """Returns the blocks of positions of one input, as cells of a sweep.

    Args:
        asked: What is asked.
        progress: Counts positions as they are done; None counts nothing.
        mesh: Devices that positions are shared out over; None is one.

    Returns:
        The cells, in order of position.
    """
    subject, question = asked.subject, asked.subject.question
    n = len(asked.tokens)
    size = block_size(subject.model, asked.tokens, question.method)
    vocab = subject.model.vocab_size
    each = vocab - 1 if asked.symbols is None else asked.symbols.shape[-1]
    few = n * each <= MAX_PAIRS and n * vocab <= MAX_TABLE
    keep = asked.keep or ("pairs" if few else "position_max")
    shared = SharedBase()
    # Sizes change the last bits: results of others are not gone on from. A limit that
    # leaves them as they are changes nothing.
    planned = choose_method(question.method, asked.problem(0, min(size, n)))
    key = {
        "command": "influence",
        "version": __version__,
        "dtype": subject.model.dtype.name,
        "seed": subject.seed,
        "target": target_key(question.target),
        "method": question.method,
        "ties": question.ties,
        "include_query": asked.include_query,
        "keep": keep,
        "query": question.query,
        **block_columns(planned.sizes),
        **asked.hashes,
    }
    if asked.tokenizer is not None:
        key["special"] = list(asked.tokenizer.special)  # which are left alone
    if asked.symbols is not None:
        key["symbols_sha256"] = sha256(canonical_json(asked.symbols.tolist()).encode())
    if asked.propose is not None:
        key["propose"] = asked.propose
    if question.precision is not None:
        key["precision"] = question.precision
    if asked.screens:
        key |= {"rtol": asked.stopping.rtol, "budget": asked.stopping.budget}

    def make(start: int) -> Cell:
        stop = min(start + size, n)
        label = f"positions {start} to {stop - 1}"
        config = {**key, "start": start, "stop": stop}

        def compute() -> dict[str, Any]:
            reported = 0

            def report(done: int, total: int) -> None:
                nonlocal reported
                if progress is None:
                    return
                progress.advance(label, (stop - start) * done // total - reported)
                reported = (stop - start) * done // total

            problem = asked.problem(start, stop, mesh=mesh, shared=shared)
            # What it costs, and so what is the cheapest, is a block's own.
            choice = choose_method(question.method, problem) if start else planned
            kept = asked.checkpoint(config)
            stopping = dataclasses.replace(
                asked.stopping, checkpoint=None if kept is None else str(kept)
            )
            found = answer(
                problem,
                choice,
                question.ties,
                keep,
                stopping,
                report,
                propose=asked.propose,
            )
            if progress is not None:
                progress.advance(label, stop - start - reported)
            return summarise(found)

        return Cell(config, label, compute)

    cells = [make(start) for start in range(0, n, size)]
    return with_error(
        cells, question.precision, lambda: asked.problem(0, n, mesh=mesh, shared=shared)
    )


def block_size(model: jm.Transformer, tokens: np.ndarray, method: str) -> int:
    """Returns how many positions are done, and recorded, at a time.

    A run has one base pass for all blocks of `incremental`, which are worth some ten
    passes together; `exhaustive` takes one for every position, and `lumped` looks at each
    class of positions once in every block.

    Args:
        model: The model.
        tokens: The input [n].
        method: The influence method asked for.

    Returns:
        A number of positions.
    """
    if method in SCREENS:
        return len(tokens)  # the largest of all is what it looks for
    if method == EXHAUSTIVE.name:
        return 256
    n, problem = len(tokens), Problem.ask(model, tokens, positions=())
    able = method in ("auto", LUMPED.name)
    lumps = able and LUMPED.refuse(problem) is None
    if lumps or len(model.layers) <= 2:
        return max(8192, -(-n // 4))
    return max(1024, n // 16) if is_sparse(problem) else 256


def summarise(result: Influence) -> dict[str, Any]:
    """Returns what is recorded of one block: the largest influence, and all of them.

    Args:
        result: The influences of its positions.

    Returns:
        The fields of `SUMMARY` and `BLOCK`, `levels`, `ties`, and `substitutions` by column.
    """
    ends = result.position_lower, result.position_upper
    if result.lower is not None and result.upper is not None:
        position, symbol = np.nonzero(~np.isnan(result.lower))
        lower, upper = result.lower[position, symbol], result.upper[position, symbol]
    elif result.position_symbol is not None:
        position = np.flatnonzero(result.position_symbol >= 0)
        symbol = result.position_symbol[position]
        lower, upper = (end[position] for end in ends if end is not None)
    else:
        position, symbol, lower, upper = np.empty((4, 0))
    return {
        **{name: getattr(result, name) for name in SUMMARY},
        **({"kind": result.kind} if result.estimated else {}),  # others by their ends
        **block_columns(result.block),
        "levels": [dataclasses.asdict(level) for level in result.levels],
        "ambiguous": result.ties is not None and result.ties.ambiguous,
        "ties": None if result.ties is None else dataclasses.asdict(result.ties),
        "substitutions": {
            "position": position,
            "symbol": symbol,
            "lower": lower,
            "upper": upper,
        },
    }


def read_rows(block: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Returns the substitutions of a recorded block, one row each.

    Args:
        block: What `summarise` returned, read back from a store.

    Returns:
        Rows with the entries of `COLUMNS`, by position, then symbol.
    """
    columns = block["substitutions"]
    return [
        dict(zip(COLUMNS, row, strict=True))
        for row in zip(*(columns[name] for name in COLUMNS), strict=True)
    ]

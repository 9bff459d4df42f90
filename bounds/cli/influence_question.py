"""What the flags of `influence` ask: one input of a model, and what is put in where."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import jax_models as jm
from bounds.cli.shared.substitutes import special_symbols
from bounds.curves.measurement import Subject, tokens_sha256
from bounds.influence import SCREENS, Problem
from bounds.influence.answer import Propose
from bounds.influence.checkpoint import checkpoint_name
from bounds.influence.method import Stopping
from bounds.influence.rounding import Rounding
from bounds.influence.row_targets import RowsTarget

# What names a substitution, where a tokenizer names symbols.
NAMES = ("wild_type", "symbol_name")


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
        propose: The float type that all are computed in first; None is none.
        rounding: Which results have radii.
    """

    subject: Subject
    include_query: bool
    stopping: Stopping
    folder: Path
    tokenizer: jm.Tokenizer | None = None
    symbols: np.ndarray | None = None
    propose: Propose | None = None
    rounding: Rounding = "auto"

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
    def symbols_each(self) -> int:
        """How many symbols are put in at a position, at most; one where there are none."""
        symbols = self.subject.model.vocab_size - 1
        return max(1, symbols if self.symbols is None else self.symbols.shape[-1])

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
        special = special_symbols(self.subject.model, self.tokenizer)
        positions = positions[~np.isin(self.tokens[positions], special)]
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
        """Returns the file in which a screen or a proposal keeps where it stands.

        Args:
            config: Of the cell. How far a screen is to go names no other file: what was
                screened is used by a run that is to go further.

        Returns:
            A path in the folder; None where nothing is screened or proposed.
        """
        if self.propose is not None:
            return self.folder / checkpoint_name(config, "proposal")
        if not self.screens:
            return None
        question = {k: v for k, v in config.items() if k not in ("rtol", "budget")}
        return self.folder / checkpoint_name(question)

"""Request of the command `influence`: one input of a model, and its substitutions."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.substitutes import special_symbols
from bounds.curves.measurement import Subject, tokens_sha256
from bounds.influence import InfluenceRequest, Proposed, Screened
from bounds.influence.checkpoint import checkpoint_name
from bounds.influence.method import Rounding
from bounds.influence.targets.table import as_value

# Columns that name a substitution, where a tokenizer names symbols.
NAMES = ("wild_type", "symbol_name")


@dataclasses.dataclass(frozen=True)
class Asked:
    """Request of the command `influence`, whose query counts from 0."""

    subject: Subject
    include_query: bool  # the query's own token is changed too
    folder: Path  # of the screen's checkpoint
    tokenizer: jm.Tokenizer | None = None  # its special symbols are not replaced
    # Padded with -1; None is all.
    symbols: Int[np.ndarray, "*tokens symbols"] | None = None
    rounding: Rounding = "auto"  # results with radii

    @property
    def tokens(self) -> Int[np.ndarray, "tokens"]:
        """The input."""
        (tokens,) = self.subject.inputs.values()
        return tokens

    def named(self, position: int | None, symbol: int | None) -> dict[str, str | None]:
        """Entries of `NAMES` of a substitution; none without a tokenizer."""
        if self.tokenizer is None or position is None or symbol is None:
            return {} if self.tokenizer is None else dict.fromkeys(NAMES)
        symbols = (int(self.tokens[position]), symbol)
        return dict(zip(NAMES, map(self.tokenizer.name, symbols), strict=True))

    @property
    def symbols_each(self) -> int:
        """Largest number of substitutes of a position; 1 where there are none."""
        symbols = self.subject.model.vocab_size - 1
        return max(1, symbols if self.symbols is None else self.symbols.shape[-1])

    @property
    def watches_all(self) -> bool:
        """True if every row is watched, not that of the query."""
        return as_value(self.subject.question.target).is_joint

    @property
    def screens(self) -> bool:
        """True if the method encloses influences, and bounds the largest."""
        return isinstance(self.subject.question.method, Screened)

    @property
    def cheap(self) -> str | None:
        """Precision that proposes the largest influences; None without one."""
        method = self.subject.question.method
        return method.precision if isinstance(method, Proposed) else None

    @property
    def hashes(self) -> dict[str, str]:
        """Columns that identify the model and the input."""
        return {
            "model_sha256": self.subject.model_sha256,
            "weighting": self.subject.label,
            "tokens_sha256": tokens_sha256(self.tokens),
        }

    def request(self, start: int, stop: int, **more: Any) -> InfluenceRequest:
        """InfluenceRequest of the positions [start, stop); `more` as in `build_request`."""
        positions, symbols = np.arange(start, stop), self.symbols
        special = special_symbols(self.subject.model, self.tokenizer)
        positions = positions[~np.isin(self.tokens[positions], special)]
        if symbols is not None and symbols.ndim == 2:
            symbols = symbols[positions]
        return self.subject.question.request(
            self.subject.model,
            self.tokens,
            positions=positions,
            symbols=symbols,
            include_query=self.include_query,
            **more,
        )

    def checkpoint(self, config: Mapping[str, Any]) -> Path | None:
        """Checkpoint file of a screen or a proposal; None without one."""
        if self.cheap is not None:
            return self.folder / checkpoint_name(config, "proposal")
        if not self.screens:
            return None
        # A screen that is to go further continues from the same file.
        question = {k: v for k, v in config.items() if k not in ("rtol", "budget")}
        return self.folder / checkpoint_name(question)

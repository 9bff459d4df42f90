"""Cells of a curve: its measurements, its bounds, and their rows read from a store.

A curve is the largest influence of one symbol against the input's length n. A cell is
one computation, whose result is a row of a store under a key of all that it depends on.
The measurement (the largest influence on one input) and each bound are cells of their
own, so that asking for another bound later computes that bound alone. A bound that
holds for all inputs of a length is computed once and stands in every row of that
length. A subject is a model with its inputs and the question measured on each. Methods
that screen bound influences and refine the bounds.
"""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from bounds.curves.columns import CURVE_BOUNDS, REASON, CurveBound
from bounds.curves.measurement import (
    Subject,
    block_columns,
    measure,
    plan,
    tokens_sha256,
)
from bounds.influence.checkpoint import checkpoint_name
from bounds.influence.method import Screen
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell
from bounds.version import __version__
from jax_models.errors import InputError

BesideKey = tuple[str, int, int]  # kind of bound, n, input


@dataclasses.dataclass(frozen=True)
class CurveCells:
    """Cells of one curve: measurements, bounds at their lengths and at longer ones."""

    subject: Subject  # the model, its inputs, and the question measured on each
    measurements: Sequence[Cell]  # one for each length and input
    # Bounds at the lengths measured, and at longer ones by kind and n.
    beside: Mapping[BesideKey, Cell]
    beyond: Mapping[tuple[str, int], Cell]

    @property
    def bounds(self) -> list[Cell]:
        """Cells of all bounds, at the lengths measured and at longer lengths."""
        return [*self.beside.values(), *self.beyond.values()]

    def read_beyond(self, store: ResultStore) -> list[dict[str, Any]]:
        """Rows of the bounds at longer lengths, as far as the store has them."""
        rows: dict[int, dict[str, Any]] = {}
        for (name, n), cell in self.beyond.items():
            found = store.find(cell.config)
            # Longer lengths are no input of the user: one that the model cannot have is
            # left out without a message.
            if found is not None and found[REASON] is None:
                columns = CURVE_BOUNDS[name].columns
                row = {column.name: found[column.name] for column in columns}
                rows.setdefault(n, {"n": n}).update(row)
        return list(rows.values())

    def read(self, store: ResultStore) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
        """Stored rows of measurements with their bounds; reasons for missing bounds."""
        rows, reasons = [], {}
        for cell in self.measurements:
            row = store.find(cell.config)
            if row is None:
                continue
            for name, kind in CURVE_BOUNDS.items():
                index = row["input"] if kind.per_input else 0
                beside = self.beside.get((name, row["n"], index))
                columns = beside and store.find(beside.config)
                if columns is None:
                    continue
                row |= {column.name: columns[column.name] for column in kind.columns}
                if columns[REASON] is not None:
                    reasons.setdefault(columns[REASON], {})[name] = None
            rows.append(row)
        why = tuple(f"{' and '.join(names)}: {why}" for why, names in reasons.items())
        return rows, why


def lengths_beyond(last: int, extend_to: int | None) -> list[int]:
    """Lengths beyond `last`: powers of ten below `extend_to`, and `extend_to`."""
    end = extend_to or 0
    powers = [10**k for k in range(len(str(end)))]
    return sorted({n for n in (*powers, end) if last < n <= end})


def curve_cells(
    subject: Subject,
    bounds: Sequence[str],
    beyond: Sequence[int] = (),
    folder: Path | None = None,
) -> CurveCells:
    """Cells of one curve; methods that screen keep checkpoints in `folder`."""
    beside, far = {}, {}
    for kind in map(CURVE_BOUNDS.__getitem__, bounds):
        for (n, index), tokens in subject.inputs.items():
            key = kind.name, n, index if kind.per_input else 0
            if key not in beside:
                beside[key] = _bound(subject, kind, index, tokens)
        if kind.of_weights and not (subject.model.is_hard and not kind.of_hard):
            for n in beyond:
                tokens = np.broadcast_to(np.int32(0), (n,))  # only their number is read
                far[kind.name, n] = _bound(subject, kind, 0, tokens)
    measurements = [
        _measurement(subject, index, tokens, folder)
        for (_, index), tokens in subject.inputs.items()
    ]
    return CurveCells(subject, measurements, beside, far)


def _measurement(
    subject: Subject,
    index: int,
    tokens: Int[np.ndarray, "tokens"],
    folder: Path | None,
) -> Cell:
    """Cell of the measurement of one input, number `index` of its length."""
    row = {"n": len(tokens), "weighting": subject.label, "input": index}
    asked = dataclasses.asdict(subject.question)
    choice = None
    # An input that the model refuses has a cell all the same, and fails when that is
    # computed.
    with contextlib.suppress(InputError):
        choice = plan(subject.model, tokens, subject.question)
    # A limit of memory acts through the block sizes alone, and these are in the key: they
    # move the last bits of an answer.
    del asked["memory_limit"]
    config = {
        **_shared(subject),
        **row,
        **asked,
        "tokens_sha256": tokens_sha256(tokens),
        **({} if choice is None else block_columns(choice.sizes)),
    }

    kept = None
    if folder is not None and choice is not None and isinstance(choice.way, Screen):
        kept = folder / checkpoint_name(config)

    def compute() -> dict[str, Any]:
        found = measure(subject.model, tokens, subject.question, choice, kept)
        return {**row, **found}

    name = f"{subject.label}, n = {len(tokens)}, input {index}"
    return Cell(config, name, compute, kept)


def _bound(
    subject: Subject, kind: CurveBound, index: int, tokens: Int[np.ndarray, "tokens"]
) -> Cell:
    """Cell of one kind of bound, for one input or for all inputs of its length."""
    question = subject.question
    config = {
        **_shared(subject),
        "bound": kind.name,
        # A kind that gets another column is computed anew.
        "columns": [column.name for column in kind.columns],
        "weighting": subject.label,
        "n": len(tokens),
        **question.watched,
    }
    if kind.of_hard:
        config["ties"] = question.ties
    if kind.per_input:
        config["tokens_sha256"] = tokens_sha256(tokens)

    def compute() -> dict[str, Any]:
        return kind.measure(subject.model, tokens, question, subject.seed)

    where = f", input {index}" if kind.per_input else ""
    name = f"{kind.name}, {subject.label}, n = {len(tokens)}{where}"
    return Cell(config, name, compute)


def _shared(subject: Subject) -> dict[str, Any]:
    """Entries that the store keys of all cells of a subject have in common."""
    return {
        "command": "curve",
        "version": __version__,
        "model_sha256": subject.model_sha256,
        "dtype": subject.model.dtype.name,
        "seed": subject.seed,
    }

"""The cells of a curve: what is measured, what stands beside it, and how it is read.

Measurements and bounds are cells of their own in the store, so that asking for another
bound later computes that bound alone. A bound that holds for all inputs of a length is
computed once and stands in every row of that length.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
from absl import flags

import jax_models as jm
from bounds.curve_bounds import CURVE_BOUNDS, REASON
from bounds.curves import BoundCurve
from bounds.influence.base import Target
from bounds.measurement import Question, measure, planned_blocks, tokens_sha256
from bounds.sweep import Cell, Results
from bounds.table import Table
from bounds.version import __version__

Inputs = Mapping[tuple[int, int], np.ndarray]  # tokens [n], by n and index
BoundKey = tuple[str, str, int, int]  # label of the curve, kind of bound, n, input


def measurement_cells(
    options: flags.FlagValues,
    models: Mapping[str, jm.Transformer],
    hashes: Mapping[str, str],
    inputs: Inputs,
    question: Question,
) -> dict[str, list[Cell]]:
    """Returns the measurements to make, by weighting."""
    cells: dict[str, list[Cell]] = {}
    # A limit of memory is there by the sizes that follow from it.
    asked = dataclasses.asdict(question)
    del asked["memory_limit"]
    for label, model in models.items():
        for (n, index), tokens in inputs.items():
            config = {
                "command": "curve",
                "version": __version__,
                "weighting": label,
                "n": n,
                "input": index,
                "model_sha256": hashes[label],
                "tokens_sha256": tokens_sha256(tokens),
                "dtype": options.dtype,
                "seed": options.seed,
                **asked,
                **_blocks(model, tokens, question),
            }
            row = {"n": n, "weighting": label, "input": index}

            def compute(model=model, tokens=tokens, row=row):
                return {**row, **measure(model, tokens, question)}

            name = f"{label}, n = {n}, input {index}"
            cells.setdefault(label, []).append(Cell(config, name, compute))
    return cells


def _blocks(
    model: jm.Transformer, tokens: np.ndarray, question: Question
) -> dict[str, int | None]:
    """Returns the sizes of blocks; none where the measurement will say what is wrong."""
    try:
        return planned_blocks(model, tokens, question)
    except jm.InputError:
        return {}


def bound_cells(
    options: flags.FlagValues,
    models: Mapping[str, jm.Transformer],
    hashes: Mapping[str, str],
    inputs: Inputs,
    question: Question,
) -> dict[BoundKey, Cell]:
    """Returns what is to be computed beside the measurements, by what it belongs to."""
    cells: dict[BoundKey, Cell] = {}
    for label, model in models.items():
        for name in options.bounds:
            if name == "none":
                continue
            kind = CURVE_BOUNDS[name]
            for (n, index), tokens in inputs.items():
                if index and not kind.per_input:
                    continue
                config = {
                    "command": "curve",
                    "bound": name,
                    "version": __version__,
                    "weighting": label,
                    "n": n,
                    "model_sha256": hashes[label],
                    "dtype": options.dtype,
                    "seed": options.seed,
                    "query": question.query,
                    "target": question.target,
                }
                if kind.of_hard:
                    config["ties"] = question.ties
                if kind.per_input:
                    config["tokens_sha256"] = tokens_sha256(tokens)

                def compute(kind=kind, model=model, tokens=tokens):
                    return kind.measure(model, tokens, question, options.seed)

                where = f", input {index}" if kind.per_input else ""
                cell = Cell(config, f"{name}, {label}, n = {n}{where}", compute)
                cells[label, name, n, index] = cell
    return cells


def read_curve(
    store: Results,
    label: str,
    cells: list[Cell],
    beside: Mapping[BoundKey, Cell],
    target: Target,
) -> BoundCurve:
    """Returns a curve from what the store holds of its cells."""
    found = [row for cell in cells if (row := store.find(cell.config)) is not None]
    rows, reasons = [], {}
    for row in found:
        merged = dict(row)
        for name, kind in CURVE_BOUNDS.items():
            index = row["input"] if kind.per_input else 0
            cell = beside.get((label, name, row["n"], index))
            columns = None if cell is None else store.find(cell.config)
            if columns is None:
                continue
            merged |= {column: columns[column] for column in kind.columns}
            if columns[REASON] is not None:
                reasons.setdefault(columns[REASON], []).append(name)
        rows.append(merged)
    why = tuple(
        f"{' and '.join(dict.fromkeys(names))}: {reason}"
        for reason, names in reasons.items()
    )
    return BoundCurve(label, target, Table(tuple(rows)), len(cells) - len(rows), why)

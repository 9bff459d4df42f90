"""Results of blocks of inputs as records of a store, and the supremum as a sentence."""

import dataclasses
from typing import Any

import numpy as np

from bounds.all_inputs.block import Attained, Found
from bounds.all_inputs.supremum import Supremum
from bounds.influence.ties import Ties
from bounds.numbers.notation import enclosure_label
from bounds.store.forms import Form, fields, ordered

TIES = fields("gap spread ambiguous row", scores=[(float, None), 2])


def found_form(length: int, vocab_size: int) -> Form:
    """Form of a block's record."""
    symbols = range(vocab_size)
    return fields(
        "max max_lower max_upper evaluated",
        **{"tokens": [symbols, length], "position": (range(length), None)},
        **{"symbol": (symbols, None), "ties": (TIES, None)},
        **{"=": ordered("max_lower", "max_upper")},
    )


def record_found(found: Found) -> dict[str, Any]:
    """Record of a block."""
    entries = vars(found) | dataclasses.asdict(found.attained)
    del entries["attained"]
    ties = None if found.ties is None else dataclasses.asdict(found.ties)
    return {**entries, "ties": ties}


def read_found(record: dict[str, Any]) -> Found:
    """Block of a record."""
    ties = record["ties"]
    if ties is not None:
        # An infinite gap, where nothing was compared, is null in JSON.
        gap = np.inf if ties["gap"] is None else ties["gap"]
        scores = tuple(np.nan if x is None else x for x in ties["scores"])
        ties = Ties(**{**ties, "gap": gap, "scores": scores})
    tokens = np.asarray(record["tokens"], np.int32)
    attained = Attained(tokens, record["position"], record["symbol"])
    names = ("max", "max_lower", "max_upper", "evaluated")
    return Found(**{x: record[x] for x in names}, attained=attained, ties=ties)


def describe_supremum(best: Supremum) -> str:
    """The maximum and where it is, in a sentence."""
    if best.position is None:
        return f"n = {best.length}: no input can be changed."
    where = (
        f"attained at position {best.position}, symbol {best.symbol}; recomputed by "
        f"{best.recomputed_by}: {best.recomputed:.10g}"
    )
    if best.estimated:
        return (
            f"n = {best.length}: an estimate from below of the maximum influence over "
            f"all inputs is {best.max:.6g}, {where}."
        )
    maximum = enclosure_label(best.max, best.max_lower, best.max_upper)
    return (
        f"n = {best.length}: the maximum influence over all inputs is {maximum}, "
        f"{best.kind}, {where}."
    )

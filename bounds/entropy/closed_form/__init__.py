"""Theorem 6, at every length: what attention of small influence cannot predict.

A prediction of the next symbol that hardly changes between two inputs of one pair loses
on at least one of them. Each bound is a number of nats per symbol that no prediction can
go below while its log-odds move by at most ε within the pairs; ε = 0 is what a constant
prediction within the pairs pays. Two readings: "last" (R1), the prediction is read at the
last symbol of the prefix, and "query" (R2), at an end token after it.
"""

from bounds.entropy.closed_form.dyck_floor import (
    HeightShares,
    dyck_floor,
    dyck_pair_floor,
    height_shares,
)
from bounds.entropy.closed_form.parity_floor import (
    even_shares,
    pair_optimum,
    pair_tangent,
    parity_floor,
    parity_pair_floor,
)
from bounds.entropy.closed_form.reading import READINGS

__all__ = [
    "READINGS",
    "HeightShares",
    "dyck_floor",
    "dyck_pair_floor",
    "even_shares",
    "height_shares",
    "pair_optimum",
    "pair_tangent",
    "parity_floor",
    "parity_pair_floor",
]

"""Numbers that are read from the changes of watched rows.

An influence is the norm of one change; a scan reads one number of each row's change, or
all its entries.
"""

import dataclasses
from typing import Literal, TypeAlias

import numpy as np
from jaxtyping import Float

from bounds.numbers.norms import euclidean_norms

Kind: TypeAlias = Literal["norm", "largest", "signed"]
# Entries of a target that count; None for all.
Chosen: TypeAlias = tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class Reading:
    """Number read from each row's change: its norm, or its largest entry, or all entries."""

    # "norm": Euclidean norm over classes, or the change itself of one class; "largest":
    # largest absolute value over classes; "signed": all classes.
    kind: Kind
    chosen: Chosen = None  # entries, picked from what methods yield

    def __call__(
        self, changes: Float[np.ndarray, "*batch rows classes"]
    ) -> Float[np.ndarray, "*batch rows"] | Float[np.ndarray, "*batch rows classes"]:
        """Number or numbers of each row in float64, from changes of the chosen entries."""
        changes = np.asarray(changes, np.float64)
        if self.kind == "signed":
            return changes
        if self.kind == "largest":
            return np.abs(changes).max(axis=-1)
        # The sign of a single entry says in which direction it moved; a norm would lose it.
        if changes.shape[-1] == 1:
            return changes[..., 0]
        return euclidean_norms(changes)

"""What is read of the changes of what is watched: a number of each row, or all.

An influence is the norm of one change; a scan reads one number of each row, or all.
Shapes: p substitutions, r rows, c what is watched of each.
"""

import dataclasses
from typing import Any, Literal, TypeAlias

import numpy as np

from bounds.numbers.euclidean import euclidean_norms

Kind: TypeAlias = Literal["norm", "largest", "signed"]
# Which entries of a target count; None for all.
Chosen: TypeAlias = tuple[int, ...] | None


@dataclasses.dataclass(frozen=True)
class Reading:
    """What is read of changes [..., r, c].

    Attributes:
        kind: "norm", the Euclidean norm over c, or the change itself where c is 1;
            "largest", the largest absolute value over c; "signed", all of c.
        chosen: which of c alone count, where the changes are formed.
    """

    kind: Kind
    chosen: Chosen = None

    def __call__(self, changes: np.ndarray) -> np.ndarray:
        """Returns what is read, [..., r], or [..., r, c] of "signed", in float64.

        Args:
            changes: [..., r, c], of the chosen entries.
        """
        changes = np.asarray(changes, np.float64)
        if self.kind == "signed":
            return changes
        if self.kind == "largest":
            return np.abs(changes).max(axis=-1)
        if changes.shape[-1] == 1:
            return changes[..., 0]
        return euclidean_norms(changes)


def choose(changes: Any, chosen: Chosen) -> Any:
    """Returns the entries [..., r, c] that count, of JAX or of NumPy."""
    return changes if chosen is None else changes[..., np.asarray(chosen)]

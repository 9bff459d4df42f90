"""How many changed rows each row of masked attention sees.

Counts only: which rows they are does not matter to `weighted_mean`. Rows 0 … n - 1 are
the rows j != i; then comes the changed row, once if i is given, else once for every i.
"""

import dataclasses

import numpy as np

MASKS = ("none", "future", "past", "strict_future", "strict_past")


@dataclasses.dataclass(frozen=True)
class Visible:
    """Counts for the rows, then for the changed row at one or at every position.

    Attributes:
        present: (n + k,) number of changed rows that the row sees, at most `total`.
        total: (n + k,) number of rows it sees.
        sees: (n + 1,) whether it sees anything at all; the last entry of the changed
            row.
        reached: (n + 1,) whether it sees a changed row.
    """

    present: np.ndarray
    total: np.ndarray
    sees: np.ndarray
    reached: np.ndarray

    def per_row(self, means: np.ndarray) -> np.ndarray:
        """Merge numbers for the changed row at every position into their maximum.

        Args:
            means: (n + k,) a number per row.

        Returns:
            (n + 1,) the same for the rows, the largest one for the changed row.
        """
        n = len(self.sees) - 1
        return np.append(means[:n], np.max(means[n:]))


def visible_changes(mask: str, changed: np.ndarray, position: int | None) -> Visible:
    """Count what each row sees under a mask.

    Args:
        mask: One of `MASKS`.
        changed: (n,) whether row j can differ at all, when i != j.
        position: i, or None for every position.

    Returns:
        The counts. For every position, of the row's own change under j = i: none, since
        then it is the changed row.

    Raises:
        ValueError: The mask is unknown.
    """
    if mask not in MASKS:
        raise ValueError(f"mask is {mask!r}, expected one of {', '.join(MASKS)}")
    n = len(changed)
    rows = np.arange(n)
    strict = mask.startswith("strict")
    if mask == "none":
        total, among, earlier, later = np.full(n, n), np.sum(changed), True, True
    elif mask.endswith("future"):
        total, earlier, later = rows + 1 - strict, True, False
        among = np.cumsum(changed) - (changed & strict)
    else:
        total, earlier, later = n - rows - strict, False, True
        among = np.cumsum(changed[::-1])[::-1] - (changed & strict)
    seen = np.broadcast_to(among, (n,))
    itself = 0 if strict else 1
    if position is None:
        # Whether there is an i != j that the row sees.
        present = np.minimum(seen + (total > itself), total)
        own_present = np.minimum(itself + seen - (changed & (itself == 1)), total)
        own_total = total
    else:
        sees_it = ((rows > position) & earlier) | ((rows < position) & later)
        present = seen + sees_it
        present[position] = 0
        own_present = np.atleast_1d(itself + seen[position])
        own_total = np.atleast_1d(total[position])
    return Visible(
        present=np.concatenate([present, own_present]),
        total=np.concatenate([total, own_total]),
        sees=np.append(total > 0, np.any(own_total > 0)),
        reached=np.append(present > 0, np.any(own_present > 0)),
    )

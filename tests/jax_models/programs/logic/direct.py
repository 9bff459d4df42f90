"""What the formulas of `applications` say, computed without them, position by position.

Strings are symbol ids [count, n]. These are definitions, written to be read: O(n) to
O(n^2) steps of Python a string.
"""

from collections.abc import Sequence

import numpy as np

from tests.jax_models.programs.rasp.checkers import follow

NOWHERE = -1


def gram_starts(strings: np.ndarray, gram: Sequence[int]) -> np.ndarray:
    """Where a word begins [count, n]."""
    k = len(gram)
    rows = [
        [row[i : i + k] == list(gram) for i in range(len(row))]
        for row in strings.tolist()
    ]
    return np.array(rows).reshape(strings.shape)


def gram_ends(strings: np.ndarray, gram: Sequence[int]) -> np.ndarray:
    """Where a word ends [count, n]."""
    return gram_starts(strings[:, ::-1], gram[::-1])[:, ::-1]


def hop_outputs(strings: np.ndarray, num_hops: int) -> np.ndarray:
    """The symbols [count, n] that hops lead to, `NOWHERE` where one has no place to go.

    find_1(i) = max{j ≤ i : j ≥ 2, w_{j−1} = w_i}, or nowhere; find_k = find_1 ∘ find_{k−1}
    (docs/logic.md, section 3).
    """

    def output(prefix: Sequence[int]) -> int:
        found = follow(prefix, num_hops)
        return NOWHERE if found == "#" else found

    rows = [[output(row[: i + 1]) for i in range(len(row))] for row in strings.tolist()]
    return np.array(rows)

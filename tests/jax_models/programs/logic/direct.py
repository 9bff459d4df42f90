"""What the formulas of `applications` say, computed without them, position by position.

Strings are symbol ids [count, n]. These are definitions, written to be read: O(n) to
O(n^2) steps of Python a string.
"""

from collections.abc import Sequence

import numpy as np

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

    def target(row: Sequence[int], at: int) -> int:
        places = [j for j in range(1, at + 1) if row[j - 1] == row[at]]
        return places[-1] if places else NOWHERE

    outputs = np.full(strings.shape, NOWHERE)
    for place, row in enumerate(strings.tolist()):
        for start in range(len(row)):
            at = start
            for _ in range(num_hops):
                at = target(row, at) if at != NOWHERE else NOWHERE
            if at != NOWHERE:
                outputs[place, start] = row[at]
    return outputs


def induction_outputs(strings: np.ndarray) -> np.ndarray:
    """The symbol [count, n] behind the latest earlier like one, `NOWHERE` without one."""
    outputs = np.full(strings.shape, NOWHERE)
    for place, row in enumerate(strings.tolist()):
        latest: dict[int, int] = {}
        for i, symbol in enumerate(row):
            if symbol in latest:
                outputs[place, i] = row[latest[symbol] + 1]
            latest[symbol] = i
    return outputs

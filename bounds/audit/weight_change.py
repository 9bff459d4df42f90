"""Step 4: |b_j - b'_j| <= Σ_w α_jw |y_w - y'_w| forgets that the weights change.

Two keys in the plane, logits the product of the first coordinates. Key 1 moves by one
unit in the first coordinate, but its second coordinate is 10, and its weight moves too.
"""

from collections.abc import Sequence

from bounds.audit.finding import CONTEXT, Finding, Real, real


def findings() -> tuple[Finding, ...]:
    """The step, read with the weights before the exchange and with those after it."""
    query = (1, 0)
    before, after = [(0, 10), query], [(1, 10), query]
    weights, new_weights = _weights(query, before), _weights(query, after)
    change = [
        b - a
        for a, b in zip(
            _average(weights, before), _average(new_weights, after), strict=True
        )
    ]
    left = CONTEXT.hypot(*change)
    distance = CONTEXT.hypot(*(b - a for a, b in zip(before[0], after[0], strict=True)))
    return tuple(
        Finding(
            step="4",
            printed="‖b_j − b'_j‖ ≤ Σ_w α_jw ‖y_w − y'_w‖",
            model="d = 2, logits = product of first coordinates, y_j = (1, 0), "
            f"y_i = (0, 10) → (1, 10); α {when} the exchange",
            left=left,
            right=used[0] * distance,
        )
        for when, used in (("before", weights), ("after", new_weights))
    )


def _weights(query: Sequence[int], keys: Sequence[Sequence[int]]) -> list[Real]:
    powers = [CONTEXT.exp(real(query[0] * key[0])) for key in keys]
    return [p / CONTEXT.fsum(powers) for p in powers]


def _average(weights: Sequence[Real], keys: Sequence[Sequence[int]]) -> list[Real]:
    return [
        CONTEXT.fsum(w * key[c] for w, key in zip(weights, keys, strict=True))
        for c in range(2)
    ]

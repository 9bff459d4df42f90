"""Step 7: at j = i the change of an average is not o(1): the query itself moves.

Half of the other keys are +1, half -1, logits y_i y_w, and y_i goes from 0 to 1. The
average goes from 0 to tanh 1, however long the input.
"""

from bounds.audit.finding import Finding, Real, real
from bounds.audit.lumped import Group, average

LENGTHS = (11, 101, 1001, 10001)


def findings() -> tuple[Finding, ...]:
    """The change of the average at i, for growing lengths."""
    return tuple(
        Finding(
            step="7",
            printed="‖b_i − b'_i‖ = o(1)",
            model="half of the other keys +1, half −1, logits y_i y_w, y_i = 0 → 1; "
            f"n = {n}",
            left=_average_at(1, n) - _average_at(0, n),
            right=real(0),
        )
        for n in LENGTHS
    )


def _average_at(own: int, length: int) -> Real:
    half = (length - 1) // 2
    keys = [Group(real(1), half), Group(real(-1), half), Group(real(own), 1)]
    return average(real(own), keys)

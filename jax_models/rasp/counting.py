"""Exact integers by attention: prefix sums and the squares that comparisons need.

Source:
    docs/rasp.md, sections 3 and 4.
"""

from collections.abc import Sequence

from jax_models.rasp.affine import Affine, constant, total
from jax_models.rasp.arithmetic import at_least_one, linear_form
from jax_models.rasp.circuit import Circuit
from jax_models.rasp.plan import IntegerValue
from jax_models.rasp.ranges import IntegerType, Linear


def count(circuit: Circuit, form: Affine) -> Affine:
    """Returns at i the number of j <= i at which a Boolean b is true, exactly.

    A uniform head gives C/i; one neuron takes off b_i/i = relu(1/i + b_i - 1), and what
    is left is S = C'/i, where C' < i counts the earlier positions. A future-masked head
    with the score n (2 S j - j^2/i), j from 0, attends to j = C', since that is
    (n/i)(C'^2 - (j - C')^2): a gap of n/i >= 1. No count is out of its reach, 0 and
    n = 1 included.
    """
    position = circuit.position(1, 0, 1)
    if form.is_constant:
        return position * form.constant
    inverse = circuit.position(-1, 0, 1)
    (mean,) = circuit.attend("mean of a Boolean", "future", [], [(form, (1,))])
    own = circuit.rectify([(inverse + form - 1, 1)], (1,))
    (before,) = circuit.attend(
        "count from a mean",
        "future",
        [
            ((mean - own) * 2, circuit.position(1, 1, 0)),
            (inverse, -circuit.position(2, 1, 0)),
        ],
        [(circuit.position(1, 0, 0), (0, 1))],
    )
    return before + form


def count_thresholds(circuit: Circuit, value: IntegerValue) -> Affine:
    """Returns the prefix sum of an integer of constant range low..high.

    x = low + sum over low < k <= high of [x >= k], so its sum is low i and a count for
    each k.
    """
    low, high = value.range.low.offset, value.range.high.offset
    reached = [
        at_least_one(circuit, _shifted(value, k - 1)) for k in range(low + 1, high + 1)
    ]
    counts = total(count(circuit, form) for form in reached)
    return counts + circuit.position(1, 0, 1) * low


def _shifted(value: IntegerValue, by: int) -> IntegerValue:
    ends = (value.range.low, value.range.high)
    low, high = (Linear(end.slope, end.offset - by) for end in ends)
    return IntegerValue(value.form - by, IntegerType(low, high))


def num_segments(of: IntegerType) -> int:
    """Returns how many segments of n - 1 cover the range, for every n >= 2.

    high - low = c n + d = c (n - 1) + (c + d), and c + d is at most as many times n - 1.
    """
    slope = of.high.slope - of.low.slope
    offset = of.high.offset - of.low.offset
    return slope + max(slope + offset, 0)


def segments(
    circuit: Circuit, form: Affine, low: Linear, number: int
) -> tuple[Affine, ...]:
    """Returns the thermometer of an integer: how far it fills segments of n - 1.

        B_k = clip(b - low - k (n - 1), 0, n - 1),   k = 0, 1, …

    Equal integers have equal thermometers, and different ones of the covered range
    different ones. For n = 1 all are 0: there is one position and nothing to choose.

    Args:
        circuit: where neurons go.
        form: b.
        low: the start of the range, a function of n.
        number: how many segments.
    """
    above = form - linear_form(circuit, low)
    step = circuit.position(0, 1, 1) - 1
    return tuple(
        circuit.rectify([(above - step * k, 1), (above - step * (k + 1), -1)], (0, 1))
        for k in range(number)
    )


def squares(
    circuit: Circuit, parts: Sequence[Affine]
) -> tuple[tuple[Affine, ...], Affine]:
    """Returns n B for each B of a thermometer, and the sum of all n B^2.

    A head without mask and the score 2 B j - j^2, j from 0, attends to j = B with a gap
    of 1 and reads n j and n j^2; it finds every B, as 0 <= B <= n - 1.
    """
    scaled, squared = [], []
    for part in parts:
        times, square = circuit.attend(
            "square of an integer",
            "none",
            [
                (part * 2, circuit.position(1, 0, 0)),
                (constant(1), -circuit.position(2, 0, 0)),
            ],
            [
                (circuit.position(1, 1, 0), (0, 0, 1)),
                (circuit.position(2, 1, 0), (0, 0, 0, 1)),
            ],
        )
        scaled.append(times)
        squared.append(square)
    return tuple(scaled), total(squared)

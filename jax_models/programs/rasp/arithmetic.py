"""Operations on exact Booleans and integers: pointwise by neurons, sums and squares by heads.

A form is a constant plus integer multiples of coordinates. A Boolean is a form of value 0
or 1, an integer a form of integer value, so that one rectifier has its kink on an integer.

Source: docs/rasp.md, sections 2 to 4; docs/theory/softmax-approximation.md, section 6.
"""

from collections.abc import Callable, Sequence

from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.plan import (
    AffineForm,
    BooleanValue,
    Circuit,
    IntegerValue,
    Polynomial,
    SymbolValue,
    Value,
    constant,
    total,
)
from jax_models.programs.rasp.syntax import IntegerType, Linear

BIT: Polynomial = (1,)


def magnitude(of: IntegerType) -> Polynomial:
    """Returns a polynomial of the length n that bounds |x| for integers x of a type."""
    ends = (of.low, of.high)
    return (
        max(abs(end.offset) for end in ends),
        max(abs(end.slope) for end in ends),
    )


def conjunction(circuit: Circuit, forms: Sequence[AffineForm]) -> AffineForm:
    """Returns the conjunction of Booleans as a form: relu(sum - (count - 1))."""
    kept = list(dict.fromkeys(form for form in forms if form != constant(1)))
    if constant(0) in kept:
        return constant(0)
    if len(kept) < 2:
        return kept[0] if kept else constant(1)
    return circuit.rectify([(total(kept) - (len(kept) - 1), 1)], BIT)


def disjunction(circuit: Circuit, forms: Sequence[AffineForm]) -> AffineForm:
    """Returns the disjunction of Booleans as a form."""
    return -conjunction(circuit, [-form + 1 for form in forms]) + 1


def both_or_neither(
    circuit: Circuit, first: AffineForm, second: AffineForm
) -> AffineForm:
    """Returns the equality of two Booleans as a form: 1 - |first - second|."""
    for form, other in ((first, second), (second, first)):
        if form.is_constant:
            return other if form.constant else -other + 1
    apart = circuit.rectify([(first - second, 1), (second - first, 1)], BIT)
    return -apart + 1


def at_least_one(circuit: Circuit, value: IntegerValue) -> AffineForm:
    """Returns [D >= 1] of an integer D as a form: relu(D) - relu(D - 1)."""
    low, high = value.range.low, value.range.high
    if low.slope >= 0 and low(1) >= 1:
        return constant(1)
    if high.slope <= 0 and high(1) <= 0:
        return constant(0)
    if value.range == syntax.BIT:
        return value.form
    return circuit.rectify([(value.form, 1), (value.form - 1, -1)], BIT)


def is_zero(circuit: Circuit, value: IntegerValue) -> AffineForm:
    """Returns the form [D = 0] of an integer D: relu(D + 1) - 2 relu(D) + relu(D - 1)."""
    form = value.form
    if form.is_constant:
        return constant(form.constant == 0)
    if value.range == syntax.BIT:
        return -form + 1
    return circuit.rectify([(form + 1, 1), (form, -2), (form - 1, 1)], BIT)


def difference(first: IntegerValue, second: IntegerValue) -> IntegerValue:
    """Returns first - second, with the range of all differences of the two ranges."""
    return IntegerValue(first.form - second.form, first.range + -1 * second.range)


def _score_nearest(
    circuit: Circuit, form: AffineForm
) -> list[tuple[AffineForm, AffineForm]]:
    """The score 2 b j - j^2, j from 0, which is largest at j = b."""
    places, squared = circuit.position(1, 0, 0), circuit.position(2, 0, 0)
    return [(form * 2, places), (constant(1), -squared)]


def times_length(circuit: Circuit, form: AffineForm) -> AffineForm:
    """Returns n b of a Boolean b as a form: b, and (n - 1) b from a head at j = b."""
    if form.is_constant:
        return circuit.position(0, 1, 1) * form.constant
    (rest,) = circuit.attend(
        "n times a Boolean",
        "none",
        _score_nearest(circuit, form),
        [(circuit.position(1, 1, 0) - circuit.position(1, 0, 0), (0, 1))],
    )
    return form + rest


def choose(
    circuit: Circuit, conditions: Sequence[AffineForm], first: Value, second: Value
) -> Value:
    """Returns the first value where all conditions hold, and the second elsewhere."""
    if isinstance(first, SymbolValue) and isinstance(second, SymbolValue):
        symbols = tuple(dict.fromkeys((*first.symbols, *second.symbols)))
        pick = _chooser(circuit, conditions)
        forms = (pick(first.form(one), second.form(one)) for one in symbols)
        return SymbolValue(symbols, tuple(forms))
    if isinstance(first, BooleanValue) and isinstance(second, BooleanValue):
        return BooleanValue(_chooser(circuit, conditions)(first.form, second.form))
    condition = conjunction(circuit, conditions)
    return _choose_integer(circuit, condition, as_integer(first), as_integer(second))


def as_boolean(value: Value) -> AffineForm:
    """Returns the form of a Boolean."""
    assert isinstance(value, BooleanValue)
    return value.form


def as_integer(value: Value) -> IntegerValue:
    """Returns an integer value unchanged, and a Boolean as an integer of 0 or 1."""
    if isinstance(value, BooleanValue):
        return IntegerValue(value.form, syntax.BIT)
    assert isinstance(value, IntegerValue)
    return value


def _chooser(
    circuit: Circuit, conditions: Sequence[AffineForm]
) -> Callable[[AffineForm, AffineForm], AffineForm]:
    def pick(first: AffineForm, second: AffineForm) -> AffineForm:
        if first == second:
            return first
        # first and all conditions; the second only where it is not always false, since
        # the conditions are then wanted as one coordinate.
        chosen = conjunction(circuit, [first, *conditions])
        if second == constant(0):
            return chosen
        condition = conjunction(circuit, conditions)
        if second == constant(1):
            return chosen - condition + 1
        return chosen + conjunction(circuit, [second, -condition + 1])

    return pick


def _choose_integer(
    circuit: Circuit, condition: AffineForm, first: IntegerValue, second: IntegerValue
) -> IntegerValue:
    """second + c D with D = first - second, c D = relu(D - G(1 - c)) - relu(-D - G(1 - c)).

    c is the condition, and G = G_1 n + G_0 bounds |D|.
    """
    found = syntax.joined(first.range, second.range)
    if condition.is_constant:
        return first if condition.constant else second
    apart = difference(first, second)
    if apart.form.is_constant:
        form = second.form + condition * apart.form.constant
        return IntegerValue(form, found)
    bound = magnitude(apart.range)
    shut = (-condition + 1) * bound[0]
    if bound[1]:
        shut += (circuit.position(0, 1, 1) - times_length(circuit, condition)) * bound[
            1
        ]
    gated = circuit.rectify(
        [(apart.form - shut, 1), (-apart.form - shut, -1)], magnitude(apart.range)
    )
    return IntegerValue(second.form + gated, found)


def linear_form(circuit: Circuit, line: Linear) -> AffineForm:
    """Returns slope n + offset as a form on the position encoding."""
    return (
        circuit.position(0, 1, 1) * line.slope + line.offset
        if line.slope
        else constant(line.offset)
    )


def count(circuit: Circuit, form: AffineForm) -> AffineForm:
    """Returns the form, at i, of the number C of j <= i where a Boolean is true.

    Source: docs/rasp.md, section 3.
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


def count_thresholds(circuit: Circuit, value: IntegerValue) -> AffineForm:
    """Returns the prefix sum of an integer x of constant range: low i + counts of x >= k."""
    low, high = value.range.low.offset, value.range.high.offset
    below = (IntegerValue(constant(k), syntax.exactly(k)) for k in range(low, high))
    reached = [at_least_one(circuit, difference(value, one)) for one in below]
    counts = total(count(circuit, form) for form in reached)
    return counts + circuit.position(1, 0, 1) * low


def num_segments(of: IntegerType) -> int:
    """Number of segments of n - 1 that cover the range, for every n >= 2."""
    slope = of.high.slope - of.low.slope
    offset = of.high.offset - of.low.offset
    return slope + max(slope + offset, 0)


def segments(
    circuit: Circuit,
    # b
    form: AffineForm,
    # start of the range, a function of n
    low: Linear,
    number: int,
) -> tuple[AffineForm, ...]:
    """Returns the thermometer of an integer b: its parts B_k in segments of n - 1.

        B_k = clip(b - low - k (n - 1), 0, n - 1),   k = 0, 1, …

    Source: docs/rasp.md, section 4.
    """
    above = form - linear_form(circuit, low)
    step = circuit.position(0, 1, 1) - 1
    return tuple(
        circuit.rectify([(above - step * k, 1), (above - step * (k + 1), -1)], (0, 1))
        for k in range(number)
    )


def squares(
    circuit: Circuit, parts: Sequence[AffineForm]
) -> tuple[tuple[AffineForm, ...], AffineForm]:
    """Returns n B for each B of a thermometer, and the sum of all n B^2.

    Source: docs/rasp.md, section 4.
    """
    scaled, squared = [], []
    for part in parts:
        times, square = circuit.attend(
            "square of an integer",
            "none",
            _score_nearest(circuit, part),
            [
                (circuit.position(1, 1, 0), (0, 0, 1)),
                (circuit.position(2, 1, 0), (0, 0, 0, 1)),
            ],
        )
        scaled.append(times)
        squared.append(square)
    return tuple(scaled), total(squared)

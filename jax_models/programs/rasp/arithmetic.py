"""Operations on exact Booleans and integers: pointwise by neurons, sums and squares by heads.

A form is a constant plus integer multiples of coordinates. A Boolean is a form of value 0
or 1, an integer a form of integer value, so that one rectifier has its kink on an integer.

Source: docs/rasp.md, sections 2 to 4; docs/theory/softmax-approximation.md, section 6.
"""

import dataclasses
from collections.abc import Callable, Sequence

from jax_models.programs.circuit import Circuit
from jax_models.programs.forms import LENGTH, ONE, LinearForm, Polynomial, constant
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.syntax import BooleanType, IntegerType, SymbolType, Type


@dataclasses.dataclass(frozen=True)
class Value:
    """The values of an expression: forms on the coordinates of the residual stream.

    A Boolean is a form whose value is 0 or 1, an integer a form in the range of its type;
    a symbol has a form for each that it can be, 1 for the true one and 0 otherwise.
    """

    type: Type
    forms: tuple[LinearForm, ...]

    @property
    def form(self) -> LinearForm:
        """The form of a Boolean or of an integer."""
        (form,) = self.forms
        return form

    @property
    def range(self) -> IntegerType:
        """The range of an integer, and of a Boolean as an integer."""
        assert isinstance(self.type, IntegerType)
        return IntegerType(self.type.low, self.type.high)

    @property
    def by_symbol(self) -> dict[str, LinearForm]:
        """The form of each symbol that a symbol can be."""
        assert isinstance(self.type, SymbolType)
        return dict(zip(self.type.symbols, self.forms, strict=True))


def magnitude(of: IntegerType) -> Polynomial:
    """Returns a polynomial of the length n that bounds |x| for integers x of a type."""
    powers = {*of.low, *of.high}
    sizes = {k: max(abs(of.low.get(k, 0)), abs(of.high.get(k, 0))) for k in powers}
    return Polynomial(sizes)


def conjunction(circuit: Circuit, forms: Sequence[LinearForm]) -> LinearForm:
    """Returns the conjunction of Booleans as a form: relu(sum - (count - 1))."""
    kept = list(dict.fromkeys(form for form in forms if form != constant(1)))
    if constant(0) in kept:
        return constant(0)
    if len(kept) < 2:
        return kept[0] if kept else constant(1)
    return circuit.rectify([(LinearForm(*kept) - (len(kept) - 1), 1)], ONE)


def disjunction(circuit: Circuit, forms: Sequence[LinearForm]) -> LinearForm:
    """Returns the disjunction of Booleans as a form."""
    return -conjunction(circuit, [-form + 1 for form in forms]) + 1


def both_or_neither(
    circuit: Circuit, first: LinearForm, second: LinearForm
) -> LinearForm:
    """Returns the equality of two Booleans as a form: 1 - |first - second|."""
    for form, other in ((first, second), (second, first)):
        if not form.variables:
            return other if form.constant else -other + 1
    apart = circuit.rectify([(first - second, 1), (second - first, 1)], ONE)
    return -apart + 1


def at_least_one(circuit: Circuit, value: Value) -> LinearForm:
    """Returns [D >= 1] of an integer D as a form: relu(D) - relu(D - 1)."""
    low, high = value.range.low, value.range.high
    if low.slope >= 0 and low(1) >= 1:
        return constant(1)
    if high.slope <= 0 and high(1) <= 0:
        return constant(0)
    if value.range == syntax.BIT:
        return value.form
    return circuit.rectify([(value.form, 1), (value.form - 1, -1)], ONE)


def is_zero(circuit: Circuit, value: Value) -> LinearForm:
    """Returns the form [D = 0] of an integer D: relu(D + 1) - 2 relu(D) + relu(D - 1)."""
    form = value.form
    if not form.variables:
        return constant(int(form.constant == 0))
    if value.range == syntax.BIT:
        return -form + 1
    return circuit.rectify([(form + 1, 1), (form, -2), (form - 1, 1)], ONE)


def difference(first: Value, second: Value) -> Value:
    """Returns first - second, with the range of all differences of the two ranges."""
    form, found = first.form - second.form, first.range + -1 * second.range
    return Value(found, (form,))


def _score_nearest(
    circuit: Circuit, form: LinearForm
) -> list[tuple[LinearForm, LinearForm]]:
    """The score 2 b j - j^2, j from 0, which is largest at j = b."""
    places, squared = circuit.position(1, 0, 0), circuit.position(2, 0, 0)
    return [(form * 2, places), (constant(1), -squared)]


def times_length(circuit: Circuit, form: LinearForm) -> LinearForm:
    """Returns n b of a Boolean b as a form: b, and (n - 1) b from a head at j = b."""
    if not form.variables:
        return circuit.position(0, 1) * form.constant
    (rest,) = circuit.attend(
        "n times a Boolean",
        "none",
        _score_nearest(circuit, form),
        [(circuit.position(1, 1, 0) - circuit.position(1, 0, 0), LENGTH)],
    )
    return form + rest


def choose(
    circuit: Circuit, conditions: Sequence[LinearForm], first: Value, second: Value
) -> tuple[LinearForm, ...]:
    """Forms of the first value where all conditions hold, and of the second elsewhere."""
    pick = _chooser(circuit, conditions)
    if isinstance(first.type, SymbolType):
        ours, theirs, zero = first.by_symbol, second.by_symbol, LinearForm()
        symbols = ours | theirs
        return tuple(pick(ours.get(x, zero), theirs.get(x, zero)) for x in symbols)
    if first.type == second.type == BooleanType():
        return (pick(first.form, second.form),)
    condition = conjunction(circuit, conditions)
    return (_choose_integer(circuit, condition, first, second),)


def _chooser(
    circuit: Circuit, conditions: Sequence[LinearForm]
) -> Callable[[LinearForm, LinearForm], LinearForm]:
    def pick(first: LinearForm, second: LinearForm) -> LinearForm:
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
    circuit: Circuit, condition: LinearForm, first: Value, second: Value
) -> LinearForm:
    """second + c D with D = first - second, c D = relu(D - G(1 - c)) - relu(-D - G(1 - c)).

    c is the condition, and G = G_1 n + G_0 bounds |D|.
    """
    if not condition.variables:
        return first.form if condition.constant else second.form
    apart = difference(first, second)
    if not apart.form.variables:
        return second.form + condition * apart.form.constant
    bound = magnitude(apart.range)
    shut = (-condition + 1) * bound.offset
    if bound.slope:
        unmet = circuit.position(0, 1) - times_length(circuit, condition)
        shut += unmet * bound.slope
    parts = [(apart.form - shut, 1), (-apart.form - shut, -1)]
    return second.form + circuit.rectify(parts, bound)


def linear_form(circuit: Circuit, line: Polynomial) -> LinearForm:
    """Returns slope n + offset as a form on the position encoding."""
    if not line.slope:
        return constant(line.offset)
    return circuit.position(0, 1) * line.slope + line.offset


def count(circuit: Circuit, form: LinearForm) -> LinearForm:
    """Returns the form, at i, of the number C of j <= i where a Boolean is true.

    Source: docs/rasp.md, section 3.
    """
    position = circuit.position(1, 0)
    if not form.variables:
        return position * form.constant
    inverse = circuit.position(-1, 0)
    (mean,) = circuit.attend("mean of a Boolean", "future", [], [(form, ONE)])
    own = circuit.rectify([(inverse + form - 1, 1)], ONE)
    (before,) = circuit.attend(
        "count from a mean",
        "future",
        [
            ((mean - own) * 2, circuit.position(1, 1, 0)),
            (inverse, -circuit.position(2, 1, 0)),
        ],
        [(circuit.position(1, 0, 0), LENGTH)],
    )
    return before + form


def count_thresholds(circuit: Circuit, value: Value) -> LinearForm:
    """Returns the prefix sum of an integer x of constant range: low i + counts of x >= k."""
    low, high = value.range.low.offset, value.range.high.offset
    below = (Value(syntax.exactly(k), (constant(k),)) for k in range(low, high))
    reached = [at_least_one(circuit, difference(value, one)) for one in below]
    counts = LinearForm(*(count(circuit, form) for form in reached))
    return counts + circuit.position(1, 0) * low


def num_segments(of: IntegerType) -> int:
    """Number of segments of n - 1 that cover the range, for every n >= 2."""
    width = of.high - of.low
    return width.slope + max(width(1), 0)


def segments(
    circuit: Circuit,
    # b
    form: LinearForm,
    # start of the range, a function of n
    low: Polynomial,
    number: int,
) -> tuple[LinearForm, ...]:
    """Returns the thermometer of an integer b: its parts B_k in segments of n - 1.

        B_k = clip(b - low - k (n - 1), 0, n - 1),   k = 0, 1, …

    Source: docs/rasp.md, section 4.
    """
    above = form - linear_form(circuit, low)
    step = circuit.position(0, 1) - 1
    return tuple(
        circuit.rectify([(above - step * k, 1), (above - step * (k + 1), -1)], LENGTH)
        for k in range(number)
    )


def squares(
    circuit: Circuit, parts: Sequence[LinearForm]
) -> tuple[tuple[LinearForm, ...], LinearForm]:
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
                (circuit.position(1, 1, 0), Polynomial({2: 1})),
                (circuit.position(2, 1, 0), Polynomial({3: 1})),
            ],
        )
        scaled.append(times)
        squared.append(square)
    return tuple(scaled), LinearForm(*squared)

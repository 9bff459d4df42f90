"""Operations on exact Booleans and integers: pointwise by neurons, sums and squares by heads.

A form is a constant plus integer multiples of coordinates. A Boolean is a form of value 0
or 1, an integer a form of integer value, so that one rectifier has its kink on an integer.
The range of an integer is two linear functions of the length n, its lower and upper bound.

Source: docs/rasp.md, sections 2 to 4; docs/theory/softmax-approximation.md, section 6.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import TypeAlias

from jax_models.programs.circuit import Circuit
from jax_models.programs.forms import LENGTH, ONE, LinearForm, Polynomial, constant
from jax_models.programs.rasp import syntax
from jax_models.programs.rasp.syntax import BooleanType, IntegerType, SymbolType, Type

Forms: TypeAlias = Sequence[LinearForm]


@dataclasses.dataclass(frozen=True)
class Value:
    """The values of an expression: forms on the coordinates of the residual stream.

    A Boolean is a form whose value is 0 or 1, an integer a form in the range of its type;
    a symbol has a form for each that it can be, 1 for the true one and 0 otherwise.
    """

    type: Type
    forms: Forms

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
        """Form of each symbol that the expression can be, 1 where it is that one."""
        assert isinstance(self.type, SymbolType)
        return dict(zip(self.type.symbols, self.forms, strict=True))


def magnitude(of: IntegerType) -> Polynomial:
    """Returns a polynomial of the length n that bounds |x| for integers x of a type."""
    powers = {*of.low, *of.high}
    sizes = {k: max(abs(of.low.get(k, 0)), abs(of.high.get(k, 0))) for k in powers}
    return Polynomial(sizes)


def difference(first: Value, second: Value) -> Value:
    """Returns first - second, with the range of all differences of the two ranges."""
    form, found = first.form - second.form, first.range + -1 * second.range
    return Value(found, (form,))


def num_segments(of: IntegerType) -> int:
    """Number of segments, n - 1 long each, that cover an integer range, for n >= 2."""
    width = of.high - of.low
    return width.slope + max(width(1), 0)


class Arithmetic(Circuit):
    """A circuit with operations on exact Booleans and integers."""

    def conjunction(self, forms: Forms) -> LinearForm:
        """Returns the conjunction of Booleans as a form: relu(sum - (number - 1))."""
        kept = list(dict.fromkeys(form for form in forms if form != constant(1)))
        if constant(0) in kept:
            return constant(0)
        if len(kept) < 2:
            return kept[0] if kept else constant(1)
        return self.rectify([(LinearForm(*kept) - (len(kept) - 1), 1)], ONE)

    def disjunction(self, forms: Sequence[LinearForm]) -> LinearForm:
        """Returns the disjunction of Booleans as a form."""
        return -self.conjunction([-form + 1 for form in forms]) + 1

    def both_or_neither(self, first: LinearForm, second: LinearForm) -> LinearForm:
        """Returns the equality of two Booleans as a form: 1 - |first - second|."""
        for form, other in ((first, second), (second, first)):
            if not form.variables:
                return other if form.constant else -other + 1
        apart = self.rectify([(first - second, 1), (second - first, 1)], ONE)
        return -apart + 1

    def at_least_one(self, value: Value) -> LinearForm:
        """Returns [D >= 1] of an integer D as a form: relu(D) - relu(D - 1)."""
        low, high = value.range.low, value.range.high
        if low.slope >= 0 and low(1) >= 1:
            return constant(1)
        if high.slope <= 0 and high(1) <= 0:
            return constant(0)
        if value.range == syntax.BIT:
            return value.form
        return self.rectify([(value.form, 1), (value.form - 1, -1)], ONE)

    def is_zero(self, value: Value) -> LinearForm:
        """Returns the form [D = 0] of an integer D: relu(D + 1) - 2 relu(D) + relu(D - 1)."""
        form = value.form
        if not form.variables:
            return constant(int(form.constant == 0))
        if value.range == syntax.BIT:
            return -form + 1
        return self.rectify([(form + 1, 1), (form, -2), (form - 1, 1)], ONE)

    def _score_nearest(self, form: LinearForm) -> list[tuple[LinearForm, LinearForm]]:
        """Score 2 b j - j^2 of positions j from 0, largest at j = b, value of a form."""
        places, squared = self.position(1, 0, 0), self.position(2, 0, 0)
        return [(form * 2, places), (constant(1), -squared)]

    def times_length(self, form: LinearForm) -> LinearForm:
        """Returns form n b of a Boolean b: b plus (n - 1) b, which a head reads at j = b."""
        if not form.variables:
            return self.position(0, 1) * form.constant
        score = self._score_nearest(form)
        value = self.position(1, 1, 0) - self.position(1, 0, 0)
        (rest,) = self.attend("n times a Boolean", "none", score, [(value, LENGTH)])
        return form + rest

    def choose(self, conditions: Forms, first: Value, second: Value) -> Forms:
        """Forms of the first value where all conditions hold, and of the second elsewhere."""
        pick = functools.partial(self._pick, conditions)
        if isinstance(first.type, SymbolType):
            ours, theirs, zero = first.by_symbol, second.by_symbol, LinearForm()
            symbols = ours | theirs
            return tuple(pick(ours.get(x, zero), theirs.get(x, zero)) for x in symbols)
        if first.type == second.type == BooleanType():
            return (pick(first.form, second.form),)
        return (self._choose_integer(self.conjunction(conditions), first, second),)

    def _pick(
        self, conditions: Forms, first: LinearForm, second: LinearForm
    ) -> LinearForm:
        """Form of the first Boolean where all conditions hold, else of the second."""
        if first == second:
            return first
        # first and all conditions; the second only where it is not always false, since
        # the conditions are then wanted as one coordinate.
        chosen = self.conjunction([first, *conditions])
        if second == constant(0):
            return chosen
        condition = self.conjunction(conditions)
        if second == constant(1):
            return chosen - condition + 1
        return chosen + self.conjunction([second, -condition + 1])

    def _choose_integer(
        self, condition: LinearForm, first: Value, second: Value
    ) -> LinearForm:
        """Form of second + c D, where c is the condition and D = first - second.

        c D = relu(D - G(1 - c)) - relu(-D - G(1 - c)), G = G_1 n + G_0 a bound on |D|.
        """
        if not condition.variables:
            return first.form if condition.constant else second.form
        apart = difference(first, second)
        if not apart.form.variables:
            return second.form + condition * apart.form.constant
        bound = magnitude(apart.range)
        shut = (-condition + 1) * bound.offset
        if bound.slope:
            unmet = self.position(0, 1) - self.times_length(condition)
            shut += unmet * bound.slope
        parts = [(apart.form - shut, 1), (-apart.form - shut, -1)]
        return second.form + self.rectify(parts, bound)

    def count(self, form: LinearForm) -> LinearForm:
        """Returns the form, at i, of the number C of j <= i where a Boolean is true.

        Source: docs/rasp.md, section 3.
        """
        position = self.position(1, 0)
        if not form.variables:
            return position * form.constant
        inverse = self.position(-1, 0)
        (mean,) = self.attend("mean of a Boolean", "future", [], [(form, ONE)])
        own = self.rectify([(inverse + form - 1, 1)], ONE)
        score = [
            ((mean - own) * 2, self.position(1, 1, 0)),
            (inverse, -self.position(2, 1, 0)),
        ]
        value = [(self.position(1, 0, 0), LENGTH)]
        (before,) = self.attend("count from a mean", "future", score, value)
        return before + form

    def count_thresholds(self, value: Value) -> LinearForm:
        """Returns the prefix sum of integers x: low i + counts of x >= k, k > low."""
        low, high = value.range.low.offset, value.range.high.offset
        below = (Value(syntax.exactly(k), (constant(k),)) for k in range(low, high))
        reached = [self.at_least_one(difference(value, one)) for one in below]
        counts = LinearForm(*(self.count(form) for form in reached))
        return counts + self.position(1, 0) * low

    def segments(
        self, form: LinearForm, low: Polynomial, number: int
    ) -> list[LinearForm]:
        """Returns the thermometer of an integer b >= low: its parts B_k in segments of n - 1.

            B_k = clip(b - low - k (n - 1), 0, n - 1),   k = 0, 1, …

        Source: docs/rasp.md, section 4.
        """
        length = self.position(0, 1)
        step, above = length - 1, form - length * low.slope - low.offset
        return [
            self.rectify([(above - step * k, 1), (above - step * (k + 1), -1)], LENGTH)
            for k in range(number)
        ]

    def square(self, part: LinearForm) -> tuple[LinearForm, ...]:
        """Returns n B and n B^2 of an integer B from 0 to n - 1.

        Source: docs/rasp.md, section 4.
        """
        score = self._score_nearest(part)
        times = self.position(1, 1, 0), Polynomial({2: 1})
        squared = self.position(2, 1, 0), Polynomial({3: 1})
        return self.attend("square of an integer", "none", score, [times, squared])

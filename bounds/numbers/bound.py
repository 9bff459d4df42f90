"""The result of a closed form: an inequality with its direction, hypotheses and source.

Three kinds of statement, three types. A `Bound` is certified: the quantity is at most
(or at least) the value whenever the hypotheses hold, rounding included. A `Claim` is
what a paper prints: an inequality of the same shape that is not proved, and may be
false. What is measured or estimated is neither, and neither type compares with a plain
number or with each other.
"""

import dataclasses
import decimal
import enum
import math
from typing import Any

from bounds.numbers import interval


class Sense(enum.Enum):
    """Direction of an inequality; the value is its wording in a sentence."""

    UPPER = "at most"
    LOWER = "at least"


def directed(value: float, spec: str, sense: Sense) -> str:
    """Text of `value` in the format `spec`, rounded up for UPPER and down for LOWER.

    >>> directed(2.00001, ".3g", Sense.UPPER), directed(2.00001, ".3g", Sense.LOWER)
    ('2.01', '2')
    """
    # A format without "." names no number of digits; infinity and NaN have none.
    if "." not in spec or not math.isfinite(value):
        return format(value, spec)  # all digits
    up = sense is Sense.UPPER
    with decimal.localcontext() as context:
        context.rounding = decimal.ROUND_CEILING if up else decimal.ROUND_FLOOR
        cut = format(decimal.Decimal(value), spec)
    try:
        return format(float(cut), spec)  # as floats are written
    except ValueError:  # a per cent sign, or what it is filled with
        return cut


@dataclasses.dataclass(frozen=True, repr=False)
class _Inequality:
    """quantity <= value (UPPER) or quantity >= value (LOWER), for a quantity >= 0."""

    # ln of the value; -inf for the value zero, +inf for an upper bound that says
    # nothing. Rounded in the direction of the sense.
    log_value: float
    sense: Sense
    quantity: str  # what is bounded, in the notation of the source
    hypotheses: tuple[str, ...]  # what must hold, one sentence each
    source: str  # where the statement is, "Hahn 2020, Lemma 5"

    def __post_init__(self) -> None:
        object.__setattr__(self, "log_value", float(self.log_value))
        if math.isnan(self.log_value):
            raise ValueError(f"the logarithm of the bound on {self.quantity!r} is NaN")
        if self.sense is Sense.LOWER and self.log_value == math.inf:
            raise ValueError(f"an infinite lower bound on {self.quantity!r}")

    @property
    def value(self) -> float:
        """Value of the bound, rounded in the direction of the sense; may be infinite."""
        if math.isinf(self.log_value):
            return 0.0 if self.log_value < 0 else math.inf
        return self._rounded(interval.exp(interval.interval(self.log_value)))

    @property
    def log10_value(self) -> float:
        """Decimal logarithm of the value, rounded in the direction of the sense."""
        if math.isinf(self.log_value):
            return self.log_value
        ln10 = interval.log(interval.interval(10))
        return self._rounded(interval.interval(self.log_value) / ln10)

    def _rounded(self, x: interval.Interval) -> float:
        return interval.upper(x) if self.sense is Sense.UPPER else interval.lower(x)

    def __float__(self) -> float:
        """Returns `value`."""
        return self.value

    @property
    def size(self) -> str:
        """The value in five digits; above 10^4 and below 10^-4 as a power of ten."""
        # Rounded in the direction of the sense, so that the text is a true bound too.
        exponent = self.log10_value
        if 4 < abs(exponent) < math.inf:
            return f"10^{directed(exponent, '.4g', self.sense)}"
        return directed(self.value, ".5g", self.sense)

    def __repr__(self) -> str:
        """Type, direction and size without the quantity, as in `Bound(<= 1)`."""
        direction = "<=" if self.sense is Sense.UPPER else ">="
        return f"{type(self).__name__}({direction} {self.size})"

    def __str__(self) -> str:
        return f"{self.quantity} {self.sense.value} {self.size}"

    def __format__(self, spec: str) -> str:
        """Text as by `str` for an empty `spec`, else the value as in `f"{bound:.3f}"`."""
        # A value above 10^15 or below 10^-15 is a power of ten whatever `spec` is.
        if not spec:
            return str(self)
        if 15 < abs(self.log10_value) < math.inf:
            return self.size
        return directed(self.value, spec, self.sense)


@dataclasses.dataclass(frozen=True, repr=False)
class Bound(_Inequality):
    """A certified inequality. `a <= b` orders the values of two with the same sense.

    >>> one = Bound(0.0, Sense.UPPER, "||x||", (), "by definition")
    >>> print(one)
    ||x|| at most 1
    >>> one
    Bound(<= 1)
    """

    def __lt__(self, other: Any) -> bool:
        """Whether the value is less than that of a Bound of the same sense."""
        return self.log_value < _comparable(self, other)

    def __le__(self, other: Any) -> bool:
        """Whether the value is at most that of a Bound of the same sense."""
        return self.log_value <= _comparable(self, other)

    def __gt__(self, other: Any) -> bool:
        """Whether the value is greater than that of a Bound of the same sense."""
        return self.log_value > _comparable(self, other)

    def __ge__(self, other: Any) -> bool:
        """Whether the value is at least that of a Bound of the same sense."""
        return self.log_value >= _comparable(self, other)


@dataclasses.dataclass(frozen=True, repr=False)
class Claim(_Inequality):
    """A printed inequality without a valid proof; its hypotheses are the printed ones."""

    # A claim has no order.


def _comparable(bound: Bound, other: object) -> float:
    if not isinstance(other, Bound):
        raise TypeError(
            f"a Bound compares with a Bound, not with a {type(other).__name__}: a "
            "certified, a claimed and a measured number are different things; compare "
            "value or log_value where that is meant"
        )
    if bound.sense is not other.sense:
        raise ValueError(
            f"{bound.quantity!r} is bounded from the {bound.sense.name} side and "
            f"{other.quantity!r} from the {other.sense.name} side: opposite senses "
            "have no order"
        )
    return other.log_value

"""Linear forms: sums of multiples of coordinates, of counts, or of powers of a length."""

from collections.abc import ItemsView, Iterator, Mapping
from typing import Any, Self

CONSTANT = -1  # key of the constant


class LinearForm(Mapping[Any, Any]):
    """Nonzero factors by variable: a coordinate, count or power, or the key `CONSTANT`.

    Example:
        >>> x, y = LinearForm({0: 1}), LinearForm({1: 1})
        >>> dict(2 * (x - y) - x + 3)
        {0: 1, 1: -2, -1: 3}
    """

    def __init__(self, *forms: Mapping[Any, Any]) -> None:
        """Adds up the given forms, factor by factor."""
        total: dict[Any, Any] = {}
        for form in forms:
            for key, factor in form.items():
                total[key] = total.get(key, 0) + factor
        self._factors = {key: factor for key, factor in total.items() if factor}

    def __getitem__(self, key: Any) -> Any:
        return self._factors[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._factors)

    def __len__(self) -> int:
        return len(self._factors)

    def items(self) -> ItemsView[Any, Any]:
        """Pairs of a variable, or `CONSTANT`, and its factor."""
        return self._factors.items()

    def __eq__(self, other: object) -> bool:
        return self._factors == getattr(other, "_factors", other)

    def __hash__(self) -> int:
        return hash(frozenset(self._factors.items()))

    def __add__(self, other: Mapping[Any, Any] | float) -> Self:
        more = other if isinstance(other, Mapping) else {CONSTANT: other}
        return type(self)(self, more)

    def __mul__(self, factor: float) -> Self:
        return type(self)({key: factor * one for key, one in self.items()})

    __rmul__ = __mul__

    def __neg__(self) -> Self:
        return self * -1

    def __sub__(self, other: "LinearForm | float") -> Self:
        return self + -other

    @property
    def constant(self) -> Any:
        """The constant of the form, 0 if it has none."""
        return self.get(CONSTANT, 0)

    @property
    def variables(self) -> dict[Any, Any]:
        """Factors by variable, without the constant."""
        return {key: factor for key, factor in self.items() if key != CONSTANT}


class Polynomial(LinearForm):
    """A polynomial of a length n: factors by power of n; as text, its linear part."""

    def __call__(self, length: int) -> int:
        """Value of the polynomial at a length."""
        return sum(factor * length**power for power, factor in self.items())

    @property
    def slope(self) -> int:
        """Factor of n in the polynomial."""
        return self.get(1, 0)

    @property
    def offset(self) -> int:
        """Value of the polynomial at n = 0."""
        return self.get(0, 0)

    def __str__(self) -> str:
        if not self.slope:
            return str(self.offset)
        return f"{self.slope} n" + (f" {self.offset:+d}" if self.offset else "")


ZERO, ONE, LENGTH = Polynomial(), Polynomial({0: 1}), Polynomial({1: 1})


def constant(value: float) -> LinearForm:
    """Returns a number as a form without variables."""
    return LinearForm({CONSTANT: value})

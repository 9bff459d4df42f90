"""Affine forms with integer coefficients on the coordinates of a residual stream."""

import dataclasses
from collections.abc import Iterable

from jax_models.assembly import CONSTANT, Form


@dataclasses.dataclass(frozen=True)
class Affine:
    """constant + sum of coefficient times coordinate; equal forms compare equal."""

    terms: tuple[tuple[int, int], ...] = ()  # (coordinate, coefficient), in order
    constant: int = 0

    def __add__(self, other: "Affine | int") -> "Affine":
        """The sum of two forms, or of a form and an integer."""
        if isinstance(other, int):
            return Affine(self.terms, self.constant + other)
        found = dict(self.terms)
        for coordinate, coefficient in other.terms:
            found[coordinate] = found.get(coordinate, 0) + coefficient
        kept = sorted((c, a) for c, a in found.items() if a)
        return Affine(tuple(kept), self.constant + other.constant)

    def __mul__(self, factor: int) -> "Affine":
        """An integer multiple."""
        if not factor:
            return Affine()
        terms = tuple((c, factor * a) for c, a in self.terms)
        return Affine(terms, factor * self.constant)

    def __neg__(self) -> "Affine":
        return self * -1

    def __sub__(self, other: "Affine | int") -> "Affine":
        """The difference."""
        return self + -other

    @property
    def is_constant(self) -> bool:
        """Whether it depends on no coordinate."""
        return not self.terms

    def written(self) -> Form:
        """The form as the assembly of weights takes it."""
        form: dict[int, float] = {c: float(a) for c, a in self.terms}
        if self.constant:
            form[CONSTANT] = float(self.constant)
        return form


def constant(value: int) -> Affine:
    """Returns the constant form."""
    return Affine((), int(value))


def coordinate(index: int) -> Affine:
    """Returns the form that reads one coordinate."""
    return Affine(((index, 1),))


def total(forms: Iterable[Affine]) -> Affine:
    """Returns the sum of forms."""
    return sum(forms, start=Affine())

"""Targets: quantities that are watched of a model's output, with their exact changes.

A target reads rows of final activations or of logits: one watched row, or, if it is
joint, several rows together. The base is the row or rows on the unchanged input, a
change their change when a symbol is replaced (a substitution). Classes are the target's
entries.
"""

import abc
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from jaxtyping import Array, Float, Int

from jax_models import InputError, Transformer
from jax_models.model.pytree import pytree

# Rows that targets read. Each is a target itself, the only ones that every question takes.
PlainTarget = Literal["activation", "logits"]
# Number of a symbol that a command line names.
NumberSymbol: TypeAlias = Callable[[str], int]
# Metadata of a field that belongs to the structure of a pytree.
STATIC = {"static": True}
# No symbol's number has more digits; Python reads at most some thousand.
MAX_DIGITS = 18


# Arrays are arguments and not constants: a probe's next direction compiles nothing.
class Target(abc.ABC):
    """A quantity of a model's output that influences and scans watch; a base class.

    Subclasses are frozen dataclasses, and pytrees. Fields are static (`metadata=STATIC`),
    or arrays, which compiled programs take as arguments. `base` has the shape [width], of
    a joint target [rows, width].
    """

    # Word of the target, on the command line, and in Python where it has no fields.
    name: ClassVar[str]
    form: ClassVar[str] = ""  # what follows the name on the command line, as ":S:T"
    label: ClassVar[str]  # size of its change, with the unit
    reads: ClassVar[PlainTarget] = "logits"
    is_joint: ClassVar[bool] = False  # True of a quantity of several rows together
    least_logits: ClassVar[int] = 1  # 2 of probabilities: that of a lone logit is 1
    # Fields that name symbols, for each of which the model needs a logit.
    symbol_fields: ClassVar[tuple[str, ...]] = ()

    @abc.abstractmethod
    def change(
        self, base: Float[Array, "*rows width"], change: Float[Array, "*batch width"]
    ) -> Float[Array, "*batch classes"]:
        """Exact change of the target, from those of the rows that it reads.

        Args:
            base: the row or rows that it reads, of the input.
            change: their changes under substitutions, with axes of these in front.
        """

    def value(
        self, base: Float[Array, "*rows width"]
    ) -> Float[Array, "classes"] | None:
        """Value of the target at `base`; None if the target compares two outputs."""
        return None

    def compare(
        self, before: Float[Array, "rows width"], after: Float[Array, "others width"]
    ) -> Float[Array, "classes"]:
        """Change of a joint target between inputs of two lengths, from rows of both."""
        # Rows of inputs of two lengths have no change, so that two values are subtracted.
        one, other = self.value(before), self.value(after)
        assert one is not None and other is not None  # or the target has its own rule
        return other - one

    def of(self, model: Transformer) -> Self:
        """The target for a model; raises `InputError` if the model does not support it."""
        classes = model.classes or 0
        for symbol in np.ravel([getattr(self, x) for x in self.symbol_fields]):
            if symbol >= classes:
                raise InputError(
                    f"target {self} names the symbol {symbol}; the model has {classes} "
                    f"logits, 0 to {classes - 1}"
                )
        return self

    def rows(self, length: int) -> Int[np.ndarray, "rows"]:
        """Positions that a joint target reads in an input of `length` tokens."""
        raise NotImplementedError

    def padded(self, count: int) -> Self | None:
        """The joint target, rows from `count` on being padding; None if unsupported."""
        return None

    def entry_symbols(self, width: int) -> Int[np.ndarray, "width"] | None:
        """Vocabulary symbol of each entry of the target; None if entries have none."""
        return None

    @property
    def noun(self) -> str:
        """Noun of the watched quantity, for messages."""
        return "the output"

    @classmethod
    def parse(cls, given: Sequence[str], symbol: NumberSymbol) -> Any:
        """Target from its arguments on a command line; None if they do not fit."""
        if not cls.form:
            return None if given else cls.name
        # By default a symbol for each field.
        fits = len(given) == cls.form.count(":")
        return cls(*map(symbol, given)) if fits else None


class _Row(Target):
    """Target whose value is the row that it reads, unchanged."""

    def change(
        self, base: Float[Array, "width"], change: Float[Array, "*batch width"]
    ) -> Float[Array, "*batch width"]:
        """Change of the row that the target reads, returned as given."""
        return change

    def value(self, base: Float[Array, "width"]) -> Float[Array, "width"]:
        """Unchanged input's row `base`, returned as given."""
        return base


@pytree
class Activation(_Row):
    """Target: the final activation of a watched row."""

    name = "activation"
    label = "‖Δy‖₂, activation units"
    reads = "activation"


@pytree
class Logits(_Row):
    """Target: the logits of a watched row."""

    name = "logits"
    label = "‖Δ logits‖₂, nats"

    def entry_symbols(self, width: int) -> Int[np.ndarray, "width"]:
        """All symbols in order: entry v is the logit of symbol v."""
        return np.arange(width)


def is_count(text: str) -> bool:
    """True if `text` consists of one to `MAX_DIGITS` ASCII digits."""
    return text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS

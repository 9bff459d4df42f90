"""The text of a formula in pieces, each with its column."""

import dataclasses
import difflib
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, Literal, NoReturn

from jax_models.errors import InputError
from jax_models.programs.logic import derived
from jax_models.programs.logic.derived import Term
from jax_models.programs.logic.syntax import (
    And,
    Constant,
    Formula,
    FormulaNode,
    Next,
    Not,
    Or,
    Previous,
    Since,
    Until,
)

Kind = Literal["symbol", "integer", "word", "mark", "end"]

PREFIXES = ("not", "P", "N", "once", "historically")
INFIXES = ("and", "or", "S", "U")
CONSTANT_WORDS = ("T", "F", "first", "last")
PREDICATES = ("odd", "even", "mod")
WORDS = frozenset((*PREFIXES, *INFIXES, *CONSTANT_WORDS, *PREDICATES))
# Operators of other notations: what is written here.
_ELSEWHERE = """\
<-> <=> ↔: (phi -> psi) and (psi -> phi); => →: phi -> psi; ! ~ ¬: not phi;
& && ∧: phi and psi; | || ∨: phi or psi; true ⊤: T; false ⊥: F; X: N phi; Y: P phi;
F: T U phi; G: not (T U not phi); O: once phi; H: historically phi; Z: not P not phi;
W: (phi U psi) or not (T U not phi); R V: not (not phi U not psi);
M: psi U (phi and psi); B: (phi S psi) or historically phi; ==: s = t; !=: not s = t"""
ELSEWHERE = {
    mark: here
    for marks, here in (entry.split(": ") for entry in _ELSEWHERE.split(";"))
    for mark in marks.split()
}

# Fewer than Python reads, so that sums of integers can still be written.
_MOST_DIGITS = 3000

_PIECE = re.compile(
    r"""(?P<space>\s+)
    | Q_(?P<name>\w+)
    | Q_'(?P<quoted>(?:[^'\\]|\\['\\])+)'
    | (?P<integer>[0-9]+)(?!\w)
    | (?P<word>(?!Q_)[^\W\d]\w*)
    | (?P<elsewhere><->|<=>|[=!]=|=>|&&?|\|\|?|[!~↔→∧∨¬⊤⊥])
    | (?P<mark>->|>=|<=|\#<|\#>|[][()+*<>=,-])""",
    re.VERBOSE,
)


@dataclasses.dataclass(frozen=True)
class Piece:
    """One piece of a formula: what it is, what it says, where it stands."""

    kind: Kind
    value: str  # of a symbol its name
    start: int  # offset of its first character
    stop: int


def pieces(text: str) -> Iterator[Piece]:
    """Yields the pieces of a formula, and "end" after the last.

    Raises:
        InputError: at a character that begins no piece, or an unknown word.
    """
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            _refuse_character(text, at)
        at = match.end()
        kind = match.lastgroup
        value = match[kind] if kind else ""
        if kind == "quoted":
            value = re.sub(r"\\(.)", r"\1", value)
        if kind == "integer" and len(value) > _MOST_DIGITS:
            refuse(
                text,
                match.start(),
                f"found an integer of {len(value)} digits, expected at most "
                f"{_MOST_DIGITS}; scale the comparison down",
            )
        if kind in ("word", "elsewhere") and value in ELSEWHERE.keys() - WORDS:
            hint = f"; a symbol {value} is written Q_{value}" * (kind == "word")
            found = (
                f"found {value!r} of another notation, expected that of docs/logic.md"
            )
            refuse(text, match.start(), f"{found}; write {ELSEWHERE[value]}{hint}")
        if kind == "word" and value not in WORDS:
            _refuse_word(text, match.start(), value)
        if kind in ("name", "quoted"):
            kind = "symbol"
        if kind in ("symbol", "integer", "word", "mark"):
            yield Piece(kind, value, match.start(), at)
    yield Piece("end", "", len(text), len(text))


def refuse(text: str, at: int, complaint: str) -> NoReturn:
    """Raises an error that names the column, and the line where there are several.

    Args:
        text: the formula.
        at: offset of the character that is wrong; the length where the end is.
        complaint: what was found, what was expected, what to do.

    Raises:
        InputError: always.
    """
    raise InputError(f"formula, {place_of(text, at)}: {complaint}")


def place_of(text: str, at: int) -> str:
    """Returns where a character stands: "column 5", "line 2, column 5" if there are lines."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"line {line}, column {column}" if "\n" in text else f"column {column}"


def suggestion(word: str, known: Collection[str]) -> str:
    """Returns "; did you mean …?" for the nearest known word, or nothing."""
    alike = [one for one in known if one.lower() == word.lower()]
    close = alike or difflib.get_close_matches(word, sorted(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _refuse_character(text: str, at: int) -> NoReturn:
    if text.startswith("Q_'", at):
        refuse(
            text,
            at,
            "found Q_' without a symbol and a closing quote, expected Q_'x'; inside "
            r"quotes write \' for a quote and \\ for a backslash",
        )
    if text.startswith("Q_", at):
        shown = f"Q_ and then {text[at + 2 : at + 3]!r}" if text[at + 2 :] else "Q_"
        refuse(
            text,
            at,
            f"found {shown}, expected the name of a symbol after Q_; put other "
            "characters in quotes, as in Q_'('",
        )
    if text[at] == "#":
        refuse(text, at, "found '#', expected a count; write #<[phi] or #>[phi]")
    number = re.compile(r"[0-9]+\w+").match(text, at)
    if number:
        refuse(
            text,
            at,
            f"found {_short(number[0])!r}, expected an integer of digits alone; a "
            "product is written with *",
        )
    refuse(
        text,
        at,
        f"found the character {text[at]!r}, expected a formula's words and marks; a "
        "symbol is written Q_a, or Q_'x' in quotes",
    )


def _refuse_word(text: str, at: int, word: str) -> NoReturn:
    hint = suggestion(word, WORDS)
    called = text[at + len(word) :].lstrip().startswith("(")
    if not hint and called:
        refuse(
            text,
            at,
            f"found the predicate {_short(word)!r}, which has no definition; expected "
            "odd, even or mod(m,r)",
        )
    refuse(
        text,
        at,
        f"found the unknown word {_short(word)!r}, expected one of "
        f"{' '.join(sorted(WORDS))}{hint or '; a symbol a is written Q_a'}",
    )


def _short(text: str) -> str:
    return text if len(text) <= 30 else text[:27] + "..."


@dataclasses.dataclass(frozen=True)
class Operator:
    """How an operator binds, what it takes, and what it makes of it."""

    strength: int
    takes: type
    make: Callable[..., Any]
    to_the_right: bool = False
    operands: int = 2


def product(left: Term, right: Term) -> Term | None:
    """Returns the product of two terms, or None where neither is an integer."""
    if left.is_constant:
        return left.constant * right
    return right.constant * left if right.is_constant else None


INFIX = {
    "->": Operator(1, FormulaNode, derived.implies, to_the_right=True),
    "or": Operator(2, FormulaNode, Or),
    "and": Operator(3, FormulaNode, And),
    "S": Operator(4, FormulaNode, Since, to_the_right=True),
    "U": Operator(4, FormulaNode, Until, to_the_right=True),
    ">=": Operator(6, Term, lambda left, right: left.at_least(right)),
    "<=": Operator(6, Term, lambda left, right: right.at_least(left)),
    ">": Operator(6, Term, lambda left, right: left.more_than(right)),
    "<": Operator(6, Term, lambda left, right: right.more_than(left)),
    "=": Operator(6, Term, lambda left, right: left.equals(right)),
    "+": Operator(7, Term, lambda left, right: left + right),
    "-": Operator(7, Term, lambda left, right: left - right),
    "*": Operator(8, Term, product),
}
PREFIX = {
    name: Operator(5, FormulaNode, make, operands=1)
    for name, make in zip(
        PREFIXES,
        (Not, Previous, Next, derived.once, derived.historically),
        strict=True,
    )
}
PREFIX["-"] = Operator(9, Term, lambda term: -term, operands=1)

CONSTANT_MEANINGS = {
    "T": "; T is the constant true",
    "F": f"; F is the constant false, eventually phi is written {ELSEWHERE['F']}",
}
CONSTANTS: dict[str, Callable[[], Formula]] = {
    "T": lambda: Constant(True),
    "F": lambda: Constant(False),
    "first": derived.first,
    "last": derived.last,
}

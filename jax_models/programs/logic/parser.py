"""Formulas from text.

Prefix operators (not P N once historically) bind tightest, then S and U (to the right),
and, or, -> (to the right). A comparison of two integer terms is an atom; terms are
integers, counts #<[phi] and #>[phi], sums, differences, and products by an integer. A
predicate odd, even, mod(m,r) is of the position, or in parentheses of one count;
mod(m,r,s,...) allows several residues.

The parser holds operators and operands on two stacks of its own: nesting is bounded by
memory alone. Every error is an `InputError` of one line that begins with the column.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from jax_models.arguments import check_alphabet, expect_kind
from jax_models.errors import InputError
from jax_models.programs.logic.derived import Term
from jax_models.programs.logic.lexer import (
    CONSTANT_MEANINGS,
    CONSTANTS,
    INFIX,
    PREFIX,
    Operator,
    Piece,
    pieces,
    place_of,
    refuse,
    suggestion,
)
from jax_models.programs.logic.syntax import (
    EVEN,
    ODD,
    AtPosition,
    Count,
    Formula,
    FormulaNode,
    OfCount,
    Predicate,
    Symbol,
    children,
)


@dataclasses.dataclass(frozen=True)
class Operand:
    """A formula or a term, and the characters it was read from."""

    value: Any
    start: int
    stop: int


@dataclasses.dataclass(frozen=True)
class Bracket:
    """A bracket that is open: how it closes, and what its content becomes."""

    piece: Piece
    closing: str
    enclose: Callable[[Operand], Any]
    start: int  # of what it will be, which may begin before the bracket


@dataclasses.dataclass(frozen=True)
class Pending:
    """An operator that waits for its last operand."""

    piece: Piece
    operator: Operator


def parse_formula(text: str, alphabet: Sequence[str] | None = None) -> Formula:
    """Returns the formula that a text says.

    Args:
        text: the formula in the concrete syntax.
        alphabet: the symbols that Q may name; None allows any.

    Returns:
        The formula, derived operators replaced by their definitions.

    Raises:
        InputError: if the text is no formula; the message begins with the column.

    Source: docs/logic.md, section 1.

    Example:
        >>> parse_formula("#<[Q_1] >= #<[Q_0] + 1") is parse_formula("#<[Q_1]>#<[Q_0]")
        True
    """
    return locate_formula(text, alphabet)[0]


def locate_formula(
    text: str, alphabet: Sequence[str] | None = None
) -> tuple[Formula, dict[Formula | Count, int]]:
    """Returns the formula that a text says, and where each of its parts is said first.

    Args:
        text: the formula in the concrete syntax.
        alphabet: the symbols that Q may name; None allows any.

    Returns:
        The formula; for each sub-formula and count the offset of the operator, or of the
        atom, that first made it.

    Raises:
        InputError: as `parse_formula`.
    """
    expect_kind("formula", text, str, "its text")
    if not text.strip():
        refuse(text, 0, "found an empty formula, expected one; write for instance Q_a")
    symbols = None if alphabet is None else check_alphabet(alphabet)
    parser = _Parser(text, symbols)
    return parser.formula(), parser.places


class _Parser:
    """One reading of a text: the pieces that are left, operators and operands."""

    def __init__(self, text: str, alphabet: Sequence[str] | None) -> None:
        self.text = text
        self.alphabet = alphabet
        self.left = pieces(text)
        self.stack: list[Pending | Bracket] = []
        self.operands: list[Operand] = []
        self.places: dict[Formula | Count, int] = {}

    def formula(self) -> Formula:
        """Returns the formula of the whole text."""
        piece = next(self.left)
        while True:
            piece = self._operand(piece)
            while piece.value in (")", "]") and piece.kind == "mark":
                self._close(piece)
                piece = next(self.left)
            if piece.kind == "end":
                return self._finish(piece)
            if piece.kind == "symbol" or piece.value not in INFIX:
                self._refuse_infix(piece)
            self._infix(piece)
            piece = next(self.left)

    def _operand(self, piece: Piece) -> Piece:
        """Reads prefix operators, opening brackets and one atom; returns what follows."""
        while True:
            match piece.kind, piece.value:
                case "symbol", name:
                    self._push(self._symbol(piece, name), piece)
                    return next(self.left)
                case "integer", digits:
                    self._push(Term.of(int(digits)), piece)
                    return next(self.left)
                case "word", ("odd" | "even" | "mod"):
                    predicate, piece, place = self._predicate(piece)
                    if piece.value != "(" or piece.kind != "mark":
                        self._add(Operand(AtPosition(predicate), *place), place[0])
                        return piece
                    self._open(piece, ")", self._of_count(predicate), place[0])
                case "word", name if name in CONSTANTS:
                    self._push(CONSTANTS[name](), piece)
                    return next(self.left)
                case (("word" | "mark"), name) if name in PREFIX:
                    self.stack.append(Pending(piece, PREFIX[name]))
                case "mark", "(":
                    self._open(piece, ")", lambda inside: inside.value, piece.start)
                case "mark", ("#<" | "#>"):
                    bracket = self._expect("[", f"after {piece.value}")
                    side = "prefix" if piece.value == "#<" else "suffix"
                    self._open(bracket, "]", self._count(side), piece.start)
                case _:
                    self._refuse_operand(piece)
            piece = next(self.left)

    def _push(self, value: Any, piece: Piece) -> None:
        self._add(Operand(value, piece.start, piece.stop), piece.start)

    def _add(self, operand: Operand, at: int) -> None:
        """Adds an operand; its parts that are new were made by the piece at `at`."""
        self.operands.append(operand)
        value = operand.value
        new: list[Formula | Count] = [value]
        if isinstance(value, Term):
            new = [count for _, count in value.terms]
        while new:
            part = new.pop()
            if part not in self.places:
                self.places[part] = at
                new += children(part)

    def _open(
        self, piece: Piece, closing: str, enclose: Callable[..., Any], start: int
    ) -> None:
        self.stack.append(Bracket(piece, closing, enclose, start))

    def _expect(self, mark: str, place: str) -> Piece:
        piece = next(self.left)
        if piece.kind != "mark" or piece.value != mark:
            self._refuse(piece.start, f"found {_named(piece)} {place}, expected {mark}")
        return piece

    def _symbol(self, piece: Piece, name: str) -> Symbol:
        if self.alphabet is not None and name not in self.alphabet:
            hint = suggestion(name, self.alphabet) or "; add it, or correct the formula"
            self._refuse(
                piece.start,
                f"found the symbol {name!r}, expected one of the alphabet "
                f"{' '.join(self.alphabet)}{hint}",
            )
        return Symbol(name)

    def _predicate(self, piece: Piece) -> tuple[Predicate, Piece, tuple[int, int]]:
        """Reads odd, even or mod(m,r): the predicate, what follows, where it stands."""
        if piece.value != "mod":
            predicate = ODD if piece.value == "odd" else EVEN
            return predicate, next(self.left), (piece.start, piece.stop)
        self._expect("(", "after mod")
        numbers = [self._natural("the modulus m of mod(m,r)")]
        if not int(numbers[0].value):
            self._refuse(numbers[0].start, "found the modulus 0, expected at least 1")
        modulus, closing = int(numbers[0].value), self._comma_or_closing()
        while closing.value == ",":
            residue = self._natural("the residue r of mod(m,r)")
            if int(residue.value) >= modulus:
                self._refuse(
                    residue.start,
                    f"found the residue {residue.value} modulo {modulus}, expected 0 to "
                    f"{modulus - 1}",
                )
            numbers.append(residue)
            closing = self._comma_or_closing()
        if len(numbers) == 1:
            self._refuse(
                closing.start, "found ) after the modulus, expected , and a residue"
            )
        predicate = Predicate(modulus, tuple(int(one.value) for one in numbers[1:]))
        return predicate, next(self.left), (piece.start, closing.stop)

    def _natural(self, what: str) -> Piece:
        piece = next(self.left)
        if piece.kind != "integer":
            self._refuse(
                piece.start,
                f"found {_named(piece)}, expected {what}, an integer; a predicate of a "
                "count is mod(m,r)(#<[phi])",
            )
        return piece

    def _comma_or_closing(self) -> Piece:
        piece = next(self.left)
        if piece.kind != "mark" or piece.value not in (",", ")"):
            self._refuse(piece.start, f"found {_named(piece)}, expected , or ) in mod")
        return piece

    def _of_count(self, predicate: Predicate) -> Callable[[Operand], OfCount]:
        def enclose(inside: Operand) -> OfCount:
            term = inside.value
            if not isinstance(term, Term) or len(term.terms) != 1 or term.constant:
                self._refuse_predicate(inside)
            ((factor, count),) = term.terms
            if factor != 1:
                self._refuse_predicate(inside)
            return OfCount(predicate, count)

        return enclose

    def _refuse_predicate(self, inside: Operand) -> NoReturn:
        kind = "integer term" if isinstance(inside.value, Term) else "formula"
        self._refuse(
            inside.start,
            f"found the {kind} {self._shown(inside)}, expected one count: predicates "
            "are of #<[phi] or #>[phi] alone, since other terms may be negative",
        )

    def _count(self, side: str) -> Callable[[Operand], Term]:
        def enclose(inside: Operand) -> Term:
            self._require(inside, FormulaNode)
            return Term.of(Count(side, inside.value))  # pyright: ignore[reportArgumentType]

        return enclose

    def _infix(self, piece: Piece) -> None:
        operator = INFIX[piece.value]
        while self.stack and isinstance(self.stack[-1], Pending):
            waiting = self.stack[-1].operator
            if waiting.strength < operator.strength + operator.to_the_right:
                break
            self._reduce()
        self._require(self.operands[-1], operator.takes, piece)
        self.stack.append(Pending(piece, operator))

    def _reduce(self) -> None:
        """Applies the operator on top of the stack."""
        pending = self.stack.pop()
        assert isinstance(pending, Pending)
        operator = pending.operator
        self._require(self.operands[-1], operator.takes, pending.piece)
        used = self.operands[-operator.operands :]
        del self.operands[-operator.operands :]
        try:
            value = operator.make(*(one.value for one in used))
        except InputError as error:  # of the syntax tree, which knows no columns
            self._refuse(pending.piece.start, str(error))
        if value is None:
            self._refuse(
                pending.piece.start,
                f"found the product of {self._shown(used[0])} and "
                f"{self._shown(used[1])}, expected an integer on one side of *; "
                "products of two counts are not linear",
            )
        start = min(pending.piece.start, used[0].start)
        self._add(Operand(value, start, used[-1].stop), pending.piece.start)

    def _close(self, piece: Piece) -> None:
        """Closes the innermost bracket."""
        while self.stack and isinstance(self.stack[-1], Pending):
            self._reduce()
        if not self.stack:
            self._refuse(
                piece.start, f"found {piece.value} without an opening one; take it out"
            )
        bracket = self.stack.pop()
        assert isinstance(bracket, Bracket)
        if bracket.closing != piece.value:
            self._refuse_open(bracket, piece)
        value = bracket.enclose(self.operands.pop())
        self._add(Operand(value, bracket.start, piece.stop), bracket.start)

    def _finish(self, piece: Piece) -> Formula:
        while self.stack:
            top = self.stack[-1]
            if isinstance(top, Bracket):
                self._refuse_open(top, piece)
            self._reduce()
        (whole,) = self.operands
        self._require(whole, FormulaNode)
        return whole.value

    def _require(
        self, operand: Operand, kind: type, piece: Piece | None = None
    ) -> None:
        """Checks that an operand is of the kind that an operator takes."""
        if isinstance(operand.value, kind):
            return
        found, use = self._shown(operand), f" for {piece.value}" if piece else ""
        if kind is Term:
            self._refuse(
                operand.start,
                f"found the formula {found}, expected a number{use}; numbers are integers "
                "and counts #<[phi], and comparisons are joined by and",
            )
        self._refuse(
            operand.start,
            f"found the number {found} outside a comparison, expected a formula{use}; "
            f"compare it, as in {found} >= 1",
        )

    def _refuse_infix(self, piece: Piece) -> NoReturn:
        expected = "an operator between formulas or numbers, or a closing bracket"
        before = self._shown(self.operands[-1])
        word = piece.value if piece.kind == "word" else before
        self._refuse(
            piece.start,
            f"found {_named(piece)} after {before}, expected {expected}; join two "
            f"formulas with and, or, ->, S, U{CONSTANT_MEANINGS.get(word, '')}",
        )

    def _refuse_operand(self, piece: Piece) -> NoReturn:
        after = self.stack[-1].piece.value if self.stack else ""
        place = f" after {after}" if after else " at the beginning"
        self._refuse(
            piece.start,
            f"found {_named(piece)}{place}, expected a formula or a number; write for "
            "instance Q_a or #<[Q_a] >= 1",
        )

    def _refuse_open(self, bracket: Bracket, piece: Piece) -> NoReturn:
        place = place_of(self.text, bracket.piece.start)
        self._refuse(
            piece.start,
            f"found {_named(piece)}, expected {bracket.closing} to close the "
            f"{bracket.piece.value} of {place}",
        )

    def _shown(self, operand: Operand) -> str:
        found = " ".join(self.text[operand.start : operand.stop].split())
        return found if len(found) <= 40 else f"{found[:24]} ... {found[-10:]}"

    def _refuse(self, at: int, complaint: str) -> NoReturn:
        refuse(self.text, at, complaint)


def _named(piece: Piece) -> str:
    if piece.kind == "end":
        return "the end"
    return (
        f"the symbol {piece.value!r}" if piece.kind == "symbol" else repr(piece.value)
    )

"""Formulas from text, and as text that parses back to the same formula.

In printed text, derived operators but the equality are replaced by their definitions.
The text has the size of the tree, which may be exponentially more than the formula.

Source: docs/logic.md, section 1.
"""

import difflib
import functools
import re
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from jax_models.arguments import check_alphabet, expect_kind
from jax_models.errors import InputError
from jax_models.programs import grammar
from jax_models.programs.forms import LinearForm, constant
from jax_models.programs.grammar import Operand, Operator, Place, Rule, Token, shorten
from jax_models.programs.logic import syntax
from jax_models.programs.logic.syntax import ATOMS, INFIX, PREFIX, Count, Formula

_CONSTANT_HINTS = {
    "T": "; T is the constant true",
    "F": "; F is the constant false, eventually phi is written T U phi",
}
WORDS = frozenset(filter(str.isalpha, (*PREFIX, *INFIX, *ATOMS)))
_MISMATCHED: dict[type, str] = {
    syntax.FormulaNode: "found the number {found} outside a comparison, expected a "
    "formula{use}; compare it, as in {found} >= 1",
    LinearForm: "found the formula {found}, expected a number{use}; numbers are integers "
    "and counts #<[phi], and comparisons are joined by and",
    Count: "found the {kind} {found}, expected one count: predicates are of #<[phi] or "
    "#>[phi] alone, since other terms may be negative",
}
_AFTER_OPERANDS = frozenset((*INFIX, ")", "]", "end"))


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
) -> tuple[Formula, dict[Formula | Count, Place]]:
    """Parses a formula; returns it, and the first place in the text of each part."""
    expect_kind("formula", text, str, "its text")
    parser = _Parser(text, None if alphabet is None else check_alphabet(alphabet))
    if not text.strip():
        parser.place(0).fail("found an empty formula, expected one, for instance Q_a")
    whole, after = parser.run(parser.expression()), parser.next
    if after.kind != "end":
        after.place.fail(f"found {after.kind} without an opening one; take it out")
    return parser.require(whole, syntax.FormulaNode, None), parser.places


class _Parser(grammar.Parser):
    """Parser of the text of a formula, which records the places of parts."""

    # Integers are shorter than Python reads, so that their sums can still be written.
    pattern = re.compile(
        r"""(?P<space>\s+)
        | Q_(?P<symbol>\w+|'(?:[^'\\]|\\['\\])+')
        | (?P<too_long>[0-9]{3001,})(?!\w)
        | (?P<integer>[0-9]+)(?!\w)
        | (?P<word>(?!Q_)[^\W\d]\w*)
        | (?P<mark><->|->|>=|<=|\#<|\#>|[][()+*<>=,-])
        | (?P<no_quoted>Q_')
        | Q_(?P<no_name>(?s:.)?)
        | (?P<no_count>\#)
        | (?P<no_integer>[0-9]+\w+)
        | (?P<no_word>(?s:.))""",
        re.VERBOSE,
    )
    refused: ClassVar = {
        "too_long": "found an integer of {length} digits, expected at most 3000; scale down",
        "no_quoted": "found Q_' without a symbol and a closing quote, expected Q_'x'; "
        r"inside quotes write \' for a quote and \\ for a backslash",
        "no_name": "found Q_ and then {token.text!r}, expected the name of a symbol after "
        "Q_; put other characters in quotes, as in Q_'('",
        "no_count": "found '#', expected a count; write #<[phi] or #>[phi]",
        "no_integer": "found {shown!r}, expected digits alone; a product is written with *",
        "no_word": "found the character {token.text!r}, expected a formula's words and "
        "marks; a symbol is written Q_a, or Q_'x' in quotes",
    }
    words = WORDS
    prefix = PREFIX
    infix = INFIX
    subject = "formula, "

    def __init__(self, text: str, alphabet: Sequence[str] | None) -> None:
        super().__init__(text)
        self.alphabet = alphabet
        self.places: dict[Formula | Count, Place] = {}

    def check(self, token: Token) -> Token:
        fail, word = token.place.fail, shorten(token.text)
        if token.kind == "word":
            hint = _suggestion(token.text, WORDS)
            if not hint and self.text[token.stop :].lstrip().startswith("("):
                fail(f"found the predicate {word!r}, expected odd, even or mod(m,r)")
            known, hint = " ".join(sorted(WORDS)), hint or "; a symbol a is written Q_a"
            fail(f"found the unknown word {word!r}, expected one of {known}{hint}")
        if token.kind == "symbol":
            # Without quotation marks and the backslashes between them.
            return token._replace(text=re.sub(r"\\(.)|'", r"\1", token.text))
        return super().check(token)

    def operator_after(self, operand: Operand) -> Operator | None:
        if self.next.kind not in _AFTER_OPERANDS:
            before = self._shown(operand)
            word = self.next.kind if self.next.kind in WORDS else before
            hint = _CONSTANT_HINTS.get(word, "")
            operators = "and, or, ->, <->, S, U, W, R"
            what = f"a closing bracket; join two formulas with {operators}{hint}"
            what = f"an operator between formulas or numbers, or {what}"
            self.expect(what, after=f" after {before}")
        return super().operator_after(operand)

    def atom(self) -> Rule:
        last = self.previous.text
        token = self.expect(
            "a formula or a number; write for instance Q_a or #<[Q_a] >= 1",
            *("symbol", "integer", *ATOMS),
            after=f" after {last}" if last else " at the beginning",
        )
        match ATOMS.get(token.kind, token.kind):
            case "symbol":
                value, known = syntax.Symbol(token.text), self.alphabet
                if known is not None and token.text not in known:
                    hint = _suggestion(token.text, known) or "; add it to the alphabet"
                    expected = f"expected one of the alphabet {' '.join(known)}{hint}"
                    token.place.fail(f"found the symbol {token.text!r}, {expected}")
            case "integer":
                value = constant(int(token.text))
            case syntax.Predicate() | None as predicate:
                value = predicate or self._modulo()
                if self.accept("("):
                    of_count = Operator(9, "count/0 )", value.of, Count)
                    value = yield self.apply(of_count, token)
            case value:
                pass
        return self._located(value, token)

    def _modulo(self) -> syntax.Predicate:
        first = self.previous
        self.expect("'('", "(", after=" after mod")
        what = "an integer, modulus or residue; a predicate of a count is mod(m,r)(#<[phi])"
        numbers: list[int] = []  # the modulus, then the residues
        for token in self.listed(what, "integer", ")", "in mod"):
            numbers.append(int(token.text))
            residues = tuple(numbers[1:]) or (0,)
            self._made(token, first, syntax.Predicate, numbers[0], residues)
        make = functools.partial(syntax.Predicate, numbers[0], tuple(numbers[1:]))
        return self._made(self.previous, first, make)

    def build(
        self, operator: Operator, token: Token, first: Token, operands: list[Any]
    ) -> Any:
        value = self._made(token, first, operator.make, *operands)
        return self._located(value, token)

    def _made(self, token: Token, first: Token, make: Any, *values: Any) -> Any:
        try:
            return make(*values)
        except InputError as error:  # of the syntax tree, which knows no columns
            found = shorten(self.text[first.start : self.previous.stop])
            token.place.fail(f"found {found}: {error}")

    def require(self, operand: Operand, wanted: Any, token: Token | None) -> Any:
        """Operand as the kind `wanted`: formula, integer term, count; else `InputError`."""
        match operand.value:
            case Count() as count if wanted is LinearForm:
                return LinearForm({count: 1})
            case LinearForm() as term if wanted is Count and (
                not term.constant and [*term.values()] == [1]
            ):
                return next(iter(term))
            case value if isinstance(value, wanted):
                return value
        use = f" for {token.kind}" if token else ""
        kind = "formula" if isinstance(operand.value, Formula) else "integer term"
        message, found = _MISMATCHED[wanted], self._shown(operand)
        operand.first.place.fail(message.format(found=found, kind=kind, use=use))

    def _located(self, value: Any, token: Token) -> Any:
        """Returns `value`; records the token's place for its parts that have none yet."""
        if not isinstance(value, LinearForm):
            for part in grammar.walk(value, self.places):
                self.places[part] = token.place
        return value

    def _shown(self, operand: Operand) -> str:
        return shorten(self.text[operand.first.start : operand.stop])


def _suggestion(word: str, known: Collection[str]) -> str:
    alike = [one for one in known if one.lower() == word.lower()]
    close = alike or difflib.get_close_matches(word, sorted(known), 1)
    return f"; did you mean {close[0]!r}?" if close else ""


_WORDS = {value: word for word, value in ATOMS.items()}
_ATOM = 6

# Text, or a formula or count and how tightly its place asks it to bind.
Part = str | tuple[Formula | Count, int]


def format_formula(formula: Formula) -> str:
    """Returns a formula as text in the syntax of `parse_formula`.

    Args:
        formula: the formula.

    Returns:
        One line; parsing it gives the same formula.

    Example:
        >>> from jax_models.programs.logic.syntax import And, Not, Or, Symbol
        >>> format_formula(And(Or(Symbol("a"), Symbol("(")), Not(Symbol("b"))))
        "(Q_a or Q_'(') and not Q_b"
    """
    expect_kind("formula", formula, Formula, "one, such as parse_formula returns")
    written: list[str] = []
    # What is still to be written, the next part last.
    waiting: list[Part] = [(formula, 0)]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            written.append(part)
        else:
            strength, parts = _parts(part[0])
            waiting += reversed(parts if strength >= part[1] else ["(", *parts, ")"])
    return "".join(written)


def _parts(formula: Formula | Count) -> tuple[int, list[Part]]:
    """Binding strength of a formula, and its text pieces and operands, in order."""
    match formula:
        case syntax.Joined(
            "and", syntax.Comparison(terms, constant), syntax.Comparison() as other
        ) if (
            other.terms == tuple((-factor, count) for factor, count in terms)
            and other.constant == 2 - constant
        ):
            return _ATOM, _comparison(terms, "=", 1 - constant)
        case syntax.Joined(word, left, right):
            strength, after = INFIX[word].strength, INFIX[word].right
            before = strength + (after == strength)
            return strength, [(left, before), f" {word} ", (right, after)]
        case syntax.Prefixed(word, operand):
            strength = PREFIX[word].right
            return strength, [f"{word} ", (operand, strength)]
        case syntax.Symbol(name):
            quoted = "'" + re.sub(r"(['\\])", r"\\\1", name) + "'"
            return _ATOM, ["Q_" + (name if re.fullmatch(r"\w+", name) else quoted)]
        case syntax.Constant():
            return _ATOM, [_WORDS[formula]]
        case syntax.Comparison(terms, constant):
            return _ATOM, _comparison(terms, ">=", 1 - constant)
        case Count(side, operand):
            return _ATOM, [syntax.SIDES[side], "[", (operand, 0), "]"]
        case syntax.Predicate(modulus, residues, count):
            numbers = ",".join(map(str, (modulus, *residues)))
            word = _WORDS.get(syntax.Predicate(modulus, residues), f"mod({numbers})")
            return _ATOM, [word, "(", (count, 0), ")"] if count else [word]


def _comparison(
    terms: Sequence[tuple[int, Count]], relation: str, right: int
) -> list[Part]:
    parts: list[Part] = []
    for factor, count in terms:
        sign = ("-" if factor < 0 else "+").center(3) if parts else "-" * (factor < 0)
        scale = f"{abs(factor)} * " if abs(factor) != 1 else ""
        parts += [sign + scale, (count, 0)]
    return [*parts, f" {relation} {right}"]

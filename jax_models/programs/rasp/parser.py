"""From text to syntax tree: the grammar of S-RASP-like programs in ASCII.

    program    ::= { name "=" expr (";" | line end) } "return" name
    expr       ::= "if" expr "then" expr "else" expr | either
    either     ::= both { "or" both }
    both       ::= denied { "and" denied }
    denied     ::= "not" denied | comparison
    comparison ::= sum [ ("=" | "!=" | "<" | "<=" | ">" | ">=") sum
                       | ["not"] "in" "{" symbol { "," symbol } "}" ]
    sum        ::= ["-"] term { ("+" | "-") term }
    term       ::= integer "*" factor | factor
    factor     ::= name | "pos" | "in" | name "(" ("i" | "j") ")" | integer | symbol
                 | "true" | "false" | "(" expr ")"
                 | "psum" "[" "j" "<=" "i" "]" factor
                 | ("right_j" | "left_j") "[" mask "," expr "]" factor ":" factor
    mask       ::= "true" | "j" "<=" "i" | "j" "<" "i" | "j" ">=" "i" | "j" ">" "i"

Symbols stand between quotation marks, comments begin with `#` or `--`. No operator
follows the default of a lookup: parentheses say whether it is meant for that or for all.

Source:
    docs/rasp.md, section 1.

The words of a program's text, with their places.

A comment runs from `#` or `--` to the end of the line. The end of a line ends a
definition, as `;` does, unless a bracket is open.
"""

import dataclasses
import re
from collections.abc import Callable

from jax_models.arguments import expect_kind
from jax_models.model.mask import Mask
from jax_models.programs.rasp.syntax import (
    INPUT,
    POSITION,
    And,
    Boolean,
    Compare,
    Comparison,
    Conditional,
    Definition,
    Expression,
    Index,
    Integer,
    Lookup,
    Member,
    Not,
    Or,
    Place,
    PrefixSum,
    Program,
    Side,
    Sum,
    Symbol,
    Variable,
)

KEYWORDS = frozenset(
    "and or not if then else true false pos in psum right_j left_j return i j".split()
)
# Vectors of integers have 64 bits.
MOST_DIGITS = 18
_PATTERN = re.compile(
    r"(?P<space>[ \t\r]+|--[^\n]*|#[^\n]*)"
    r"|(?P<newline>\n)"
    r"|(?P<symbol>'[^'\n]+'|\"[^\"\n]+\")"
    r"|(?P<integer>[0-9]+)"
    r"|(?P<name>[^\W\d]\w*)"
    r"|(?P<mark><=|>=|!=|[=<>+\-*()\[\]{},:;])"
)
_COMPARISONS: dict[str, Comparison] = {
    "=": "=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_MASKS: dict[str, Mask] = {
    "<=": "future",
    "<": "strict_future",
    ">=": "past",
    ">": "strict_past",
}
# Each level takes some frames of Python's stack, of which there are a thousand.
MOST_NESTED = 50
_OPERATORS = {*_COMPARISONS, "!=", "+", "-", "*", "and", "or", "in", "not"}
_INDICES: dict[str, Index] = {"i": "i", "j": "j"}
_SIDES: dict[str, Side] = {"right_j": "right", "left_j": "left"}


@dataclasses.dataclass(frozen=True)
class Token:
    """One word: kind is `name`, `integer`, `symbol`, `end`, or the word itself."""

    kind: str
    text: str
    place: Place

    def __str__(self) -> str:
        """The word as an error message shows it."""
        if self.kind == "end":
            return "the end of the program"
        return "the end of the line" if self.text == "\n" else repr(self.text)


def split_tokens(text: str) -> list[Token]:
    """Returns the words of a program; the last is of the kind `end`.

    Returns:
        Tokens; a line's end is a `;` where it ends a definition, symbols are without
        their quotation marks.

    Raises:
        InputError: at a character that begins no word, or an integer that is too long.
    """
    found, open_brackets = [], 0
    line, start, at = 1, 0, 0
    while at < len(text):
        place = Place(line, at - start + 1)
        match = _PATTERN.match(text, at)
        if match is None:
            if text[at] in "'\"":
                place.fail(
                    "this quotation mark begins no symbol; write one symbol between "
                    "two marks, as in 'a'"
                )
            place.fail(f"the character {text[at]!r} begins no word of a program")
        at, kind, word = match.end(), match.lastgroup, match.group()
        if kind == "newline":
            line, start = line + 1, at
            if not open_brackets:
                found.append(Token(";", word, place))
        elif kind == "symbol":
            found.append(Token(kind, word[1:-1], place))
        elif kind == "integer":
            if len(word) > MOST_DIGITS:
                place.fail(
                    f"the integer has {len(word)} digits; at most {MOST_DIGITS} are read"
                )
            found.append(Token(kind, word, place))
        elif kind == "name":
            found.append(Token(word if word in KEYWORDS else kind, word, place))
        elif kind == "mark":
            open_brackets += (word in "([{") - (word in ")]}")
            open_brackets = max(open_brackets, 0)
            found.append(Token(word, word, place))
    found.append(Token("end", "", Place(line, at - start + 1)))
    return found


class _Parser:
    """Reads tokens from left to right, one function for each rule."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._depth = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _take(self) -> Token:
        token = self._next
        self._at += token.kind != "end"
        return token

    def _accept(self, kind: str) -> Token | None:
        return self._take() if self._next.kind == kind else None

    def _expect(self, kind: str, what: str) -> Token:
        if self._next.kind != kind:
            self._next.place.fail(f"expected {what}, found {self._next}")
        return self._take()

    def program(self) -> Program:
        definitions = []
        while True:
            while self._accept(";"):
                pass
            if self._accept("return"):
                break
            if self._next.kind == "end":
                self._next.place.fail(
                    "the program returns nothing; end it with 'return NAME'"
                )
            definitions.append(self._definition())
        result = self._variable()
        while self._accept(";"):
            pass
        self._expect("end", "the end of the program after what it returns")
        return Program(tuple(definitions), result)

    def _definition(self) -> Definition:
        name = self._expect("name", "a new name or 'return'")
        self._expect("=", f"'=' after the name {name.text!r}")
        expression = self.expression()
        if self._next.kind not in (";", "end"):
            self._next.place.fail(
                f"expected an operator, or ';' or the end of the line after the "
                f"definition of {name.text!r}, found {self._next}"
            )
        return Definition(name.place, name.text, expression)

    def expression(self) -> Expression:
        return self._nested(self._conditional)

    def _nested(self, rule: Callable[[], Expression]) -> Expression:
        self._depth += 1
        if self._depth > MOST_NESTED:
            self._next.place.fail(
                "the expression is nested too deep here; give a part of it a name of its "
                "own"
            )
        found = rule()
        self._depth -= 1
        return found

    def _conditional(self) -> Expression:
        if token := self._accept("if"):
            condition = self.expression()
            self._expect("then", "'then' after the condition")
            first = self.expression()
            self._expect("else", "'else' after the first value")
            return Conditional(token.place, condition, first, self.expression())
        return self._either()

    def _either(self) -> Expression:
        operands = [self._both()]
        while self._accept("or"):
            operands.append(self._both())
        first = operands[0]
        return first if len(operands) == 1 else Or(first.place, tuple(operands))

    def _both(self) -> Expression:
        operands = [self._denied()]
        while self._accept("and"):
            operands.append(self._denied())
        first = operands[0]
        return first if len(operands) == 1 else And(first.place, tuple(operands))

    def _denied(self) -> Expression:
        token, odd = self._next, False
        while self._accept("not"):
            odd = not odd
        if odd:
            return Not(token.place, self._comparison())
        return self._comparison()

    def _comparison(self) -> Expression:
        left = self._sum()
        token = self._next
        if operator := _COMPARISONS.get(token.kind):
            self._take()
            return Compare(token.place, operator, left, self._sum())
        if self._accept("!="):
            equal = Compare(token.place, "=", left, self._sum())
            return Not(token.place, equal)
        denied = self._accept("not")
        if denied or self._next.kind == "in":
            self._expect("in", "'in' after 'not' behind a value")
            member = Member(token.place, left, self._symbols())
            return Not(token.place, member) if denied else member
        return left

    def _symbols(self) -> tuple[str, ...]:
        self._expect("{", "'{' and a list of symbols")
        symbols = [self._expect("symbol", "a symbol such as 'a'").text]
        while self._accept(","):
            symbols.append(self._expect("symbol", "a symbol such as 'a'").text)
        self._expect("}", "',' or '}' after a symbol")
        return tuple(symbols)

    def _sum(self) -> Expression:
        place, sign = self._next.place, -1 if self._accept("-") else 1
        terms = [self._term(sign)]
        while self._next.kind in ("+", "-"):
            terms.append(self._term(1 if self._take().kind == "+" else -1))
        if len(terms) == 1 and terms[0][0] == 1:
            return terms[0][1]
        return Sum(place, tuple(terms))

    def _term(self, sign: int) -> tuple[int, Expression]:
        factor = self._factor()
        if self._next.kind != "*":
            return sign, factor
        star = self._take()
        if not isinstance(factor, Integer):
            star.place.fail(
                "only an integer multiplies a vector, as in 3 * x: write it first"
            )
        return sign * factor.value, self._factor()

    def _factor(self) -> Expression:
        token = self._next
        match token.kind:
            case "name" | "pos" | "in":
                return self._variable(indexed=True)
            case "integer":
                return Integer(self._take().place, int(token.text))
            case "symbol":
                return Symbol(self._take().place, token.text)
            case "true" | "false":
                return Boolean(self._take().place, token.kind == "true")
            case "(":
                self._take()
                inner = self.expression()
                self._expect(")", "an operator or ')'")
                return inner
            case "psum":
                return self._nested(self._prefix_sum)
            case "right_j" | "left_j":
                return self._nested(self._lookup)
        token.place.fail(f"expected a value, found {token}")

    def _variable(self, indexed: bool = False) -> Variable:
        token = self._next
        if token.kind not in ("name", POSITION, INPUT):
            token.place.fail(f"expected a name, found {token}")
        self._take()
        if not indexed or not self._accept("("):
            return Variable(token.place, token.text)
        index = self._take()
        if index.kind not in _INDICES:
            index.place.fail(
                f"expected i or j in {token.text}(...), found {index}; there are no "
                "functions but psum, right_j and left_j"
            )
        self._expect(")", "')' after the index")
        return Variable(token.place, token.text, _INDICES[index.kind])

    def _prefix_sum(self) -> Expression:
        place = self._take().place
        self._expect("[", "'[' after psum")
        if self._mask() != "future":
            place.fail("a prefix sum is over j<=i alone: write psum[j<=i]")
        self._expect("]", "']' after j<=i")
        return PrefixSum(place, self._factor())

    def _lookup(self) -> Expression:
        token = self._take()
        self._expect("[", f"'[' after {token.text}")
        mask = self._mask()
        self._expect(",", "',' and a predicate after the mask")
        predicate = self.expression()
        self._expect("]", "an operator or ']' after the predicate")
        value = self._factor()
        self._expect(":", "':' and a default after the value")
        default = self._factor()
        if self._next.kind in _OPERATORS:
            self._next.place.fail(
                f"{self._next} after a lookup could be meant for its default or for the "
                "whole: put one of the two in parentheses"
            )
        side = _SIDES[token.kind]
        return Lookup(token.place, side, mask, predicate, value, default)

    def _mask(self) -> Mask:
        if self._accept("true"):
            return "none"
        self._expect("j", "a mask: true, j<=i, j<i, j>=i or j>i")
        order = self._take()
        if order.kind not in _MASKS:
            order.place.fail(f"expected <=, <, >= or > in a mask, found {order}")
        self._expect("i", "i at the end of a mask")
        return _MASKS[order.kind]


def parse_program(text: str) -> Program:
    """Returns the syntax tree of a program.

    Args:
        text: in the grammar above.

    Returns:
        The program; types and names are not checked yet.

    Raises:
        InputError: where the text departs from the grammar, with line and column.
    """
    expect_kind("program", text, str, "its text")
    return _Parser(split_tokens(text)).program()

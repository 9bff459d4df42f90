"""Tokens, operator precedence and syntax trees, which formulas and programs share.

A grammar is a subclass of `Parser` with three tables: a pattern whose named groups are the
kinds of tokens, and prefix and infix operators, such as brackets and `if`. An operator of
greater strength binds tighter. Rules are generators that yield the rules they need and
return what they read. They run on a stack of their own, so that nesting is bounded by
memory alone.
"""

import bisect
import dataclasses
import functools
import math
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, NoReturn, dataclass_transform

import jax

from jax_models.errors import InputError

Rule = Generator["Rule", Any, Any]


class Place(NamedTuple):
    """A line and a column of a text, both from 1; `line` is None where none is shown."""

    line: int | None
    column: int
    subject: str = ""  # what the text is, as a message begins

    def __str__(self) -> str:
        """Line, if shown, and column as a message shows them."""
        return f"line {self.line}, " * bool(self.line) + f"column {self.column}"

    def fail(self, message: str) -> NoReturn:
        """Raises an `InputError` that begins with the kind of text and this place."""
        raise InputError(f"{self.subject}{self}: {message}")


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
class Tree:
    """Syntax-tree node, a frozen dataclass; fields, or tuples in them, hold nodes."""

    def __init_subclass__(cls) -> None:
        dataclasses.dataclass(frozen=True)(cls)


_is_node = lambda value: isinstance(value, Tree)


def shorten(text: str) -> str:
    """Returns a text in one line, without its middle where that is long."""
    text = " ".join(text.split())
    return text if len(text) <= 40 else f"{text[:24]} ... {text[-10:]}"


def children(node: Any) -> tuple[Any, ...]:
    """Returns the child nodes in a node's fields, from left to right."""
    held = jax.tree.leaves((*vars(node).values(),), is_leaf=_is_node)
    return tuple(filter(_is_node, held))


def walk(node: Any, known: Collection[Any] = ()) -> Iterator[Any]:
    """Yields a tree's distinct nodes, children first; does not enter `known` nodes."""
    seen: set[Tree] = set()
    stack: list[tuple[Any, bool]] = [(node, False)]
    while stack:
        part, ready = stack.pop()
        if ready:
            yield part
        elif part not in seen and part not in known:
            seen.add(part)
            stack.append((part, True))
            stack += [(child, False) for child in reversed(children(part))]


class Token(NamedTuple):
    """Piece of a text; its kind is a group of the pattern, "end", or its own text."""

    kind: str
    text: str
    start: int
    stop: int
    place: Place


class Operator(NamedTuple):
    """Binding strength of an operator, its right-hand syntax, and the node it makes.

    `right` is the least strength of a right operand, or a text of several parts:
    operands as "name/strength", tokens, and words that a method `read_WORD` reads.
    """

    strength: int
    right: Any
    make: Any = None  # of the operands, if the grammar builds nodes by it
    takes: Any = object
    alone: bool = False  # no second one of its strength follows


class Operand(NamedTuple):
    """A parsed value, its first token, its end in the text, its outermost operator."""

    value: Any
    first: Token
    stop: int
    by: Operator | None = None


class Parser:
    """Parser of one text, from left to right, with one token of lookahead."""

    pattern: ClassVar[re.Pattern[str]]  # named groups are kinds; every text matches
    refused: ClassVar[Mapping[str, str]]  # messages of the kinds that are no token
    words: ClassVar[Collection[str]]  # that are kinds of their own
    prefix: ClassVar[Mapping[str, Operator]]
    infix: ClassVar[Mapping[str, Operator]]
    most_nested: ClassVar[float] = math.inf
    # Rule of the value of an operand that begins with no prefix operator.
    atom: Callable[..., Rule]
    # Value of an operator, given it, its token, the first of its expression, its operands.
    build: Callable[..., Any]
    subject: ClassVar[str] = ""  # of the text; two lines or more are then counted
    names: ClassVar[Mapping[str, str]] = {  # of kinds that their text does not name
        "end": "the end",
        "newline": "the end of the line",
        "symbol": "the symbol {!r}",
    }

    def __init__(self, text: str) -> None:
        """Begins at the first token."""
        self.text, self.depth = text, 1
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self.previous = Token("start", "", 0, 0, self.place(0))
        self._left = self.split()

    def place(self, at: int) -> Place:
        """Returns the place of a character, given by its offset."""
        line, is_only = bisect.bisect(self._lines, at), len(self._lines) == 1
        column = at - self._lines[line - 1] + 1
        return Place(None if self.subject and is_only else line, column, self.subject)

    def split(self) -> Iterator[Token]:
        """Yields the tokens of the text, and "end" after the last."""
        at = 0
        while match := self.pattern.match(self.text, at):
            kind, start, at = str(match.lastgroup), at, match.end()
            if kind == "space":
                continue
            word = match[kind]
            if kind == "mark" or (kind == "word" and word in self.words):
                kind = word
            yield self.check(Token(kind, word, start, at, self.place(start)))
        yield Token("end", "", at, at, self.place(at))

    def check(self, token: Token) -> Token:
        """Returns the token as rules read it; an `InputError` if its kind is refused."""
        if complaint := self.refused.get(token.kind):
            length, shown = len(token.text), shorten(token.text)
            token.place.fail(complaint.format(token=token, length=length, shown=shown))
        return token

    @functools.cached_property
    def next(self) -> Token:
        """The token ahead, split off the text when it is first asked for."""
        return next(self._left)

    @property
    def found(self) -> str:
        """Name of the token ahead, as messages show it."""
        return self.names.get(self.next.kind, "{!r}").format(self.next.text)

    def take(self) -> Token:
        """Returns the token ahead and advances past it, but not past the end."""
        token = self.next
        if token.kind != "end":
            self.previous = token
            del self.next
        return token

    def accept(self, *kinds: str) -> Token | None:
        """Takes the token ahead if it is of one of the kinds; else returns None."""
        return self.take() if self.next.kind in kinds else None

    def expect(self, what: str, *kinds: str, after: str = "") -> Token:
        """Takes the token ahead; an `InputError` unless it is of one of the kinds."""
        if self.next.kind not in kinds:
            self.next.place.fail(f"found {self.found}{after}, expected {what}")
        return self.take()

    def listed(self, what: str, kind: str, closing: str, of: str) -> Iterator[Token]:
        """Yields the items of a comma-separated list; takes its `closing` bracket."""
        separator = ","
        while separator != closing:
            yield self.expect(what, kind)
            separator = self.expect(f"',' or {closing!r} {of}", ",", closing).kind

    def run(self, rule: Rule) -> Any:
        """Returns the result of a rule; the rules that it yields are run on a stack."""
        stack, value = [rule], None
        while stack:
            try:
                stack.append(stack[-1].send(value))
                value = None
            except StopIteration as done:
                stack.pop()
                value = done.value
        return value

    def expression(self, least: int = 0) -> Rule:
        """Reads the longest expression whose operators have strength >= `least`."""
        first = self.next
        operator = self.prefix.get(first.kind)
        if operator and operator.strength >= least:
            value = yield self.apply(operator, self.take())
        else:
            operator, value = None, (yield self.atom())
        while True:
            operand = Operand(value, first, self.previous.stop, operator)
            after = self.operator_after(operand)
            if not after or after.strength < least:
                return operand
            if operator and operator.strength < after.strength + after.alone:
                return operand
            operator, value = after, (yield self.apply(after, self.take(), operand))

    def apply(self, operator: Operator, token: Token, *left: Operand) -> Rule:
        """Reads the operands after an operator; returns the node built of all operands."""
        operands = [self.require(one, operator.takes, token) for one in left]
        read: list[Any] = []
        before = is_open = ""  # the operand before a token, if operators may follow it
        is_nested = not left and token.kind != "-"  # what is infix or a sign is not
        self.depth += is_nested
        for part in str(operator.right).split():
            name, _, strength = part.rpartition("/")
            if strength.isdigit():
                if self.depth > self.most_nested:
                    self.next.place.fail("nested too deep; name a part of it before")
                read.append((yield self.expression(int(strength))))
            elif rule := getattr(self, f"read_{part}", None):
                read += rule(token)
                name = part
            elif before:
                of = f"after the {before} of {token.kind!r} at {token.place}"
                self.expect(f"{is_open}{part!r} {of}", part)
            else:
                self.expect(repr(part), part, after=f" after {self.previous.text}")
            before, is_open = name, "an operator or " * (strength == "0")
        self.depth -= is_nested
        operands += [self.require(one, operator.takes, token) for one in read]
        return self.build(operator, token, left[0].first if left else token, operands)

    def operator_after(self, operand: Operand) -> Operator | None:
        """Returns the infix operator ahead, which follows `operand`, or None."""
        return self.infix.get(self.next.kind)

    def require(self, operand: Operand, wanted: Any, token: Token) -> Any:
        """Returns an operand's value for `build`, which makes nodes; may refuse it."""
        return operand

"""The words of a program's text, with their places.

A comment runs from `#` or `--` to the end of the line. The end of a line ends a
definition, as `;` does, unless a bracket is open.
"""

import dataclasses
import re

from jax_models.rasp.syntax import Place

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

    Args:
        text: the program.

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

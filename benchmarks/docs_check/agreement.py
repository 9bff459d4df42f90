"""Whether a program still prints what a page says, up to the digits that the page states.

Text agrees where its words do, whatever the white space. A number that is written with a
point or an exponent agrees if it rounds to the stated digits, and, where these are four or
more, within one unit of the last, since other machines round sums in other orders; a whole
number agrees if it is the same. What was measured by a clock, a number before `s`, `ms` or
`min`, is not compared, and a line `...` stands for any lines.
"""

import re
from decimal import Decimal

TIME = re.compile(r"(?<![\w.])\d+(\.\d+)?(e[+-]?\d+)? ?(ms|s|min|seconds|minutes)\b")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
# Numbers that name something: a paper of a year, a statement, a section, a version.
NAME = re.compile(
    r"\b(?:[A-Z]\w+|al\.|TACL \d+|arXiv \d+\.\d+),?\s\(?(?:19|20)\d\d\b"
    r"|\((?:19|20)\d\d\)|\b20\d\d-\d\d-\d\d\b"
    r"|\b(?:[Ll]emma|[Tt]heorem|[Cc]orollary|[Ss]tep)s? \d+(?:(?:,| and| to) \d+)*"
    r"|\b[Ss]ections? \d+(\.\d+)*|\barXiv \d+\.\d+|/abs/\d+\.\d+|\d+(\.\d+){2,}"
    r"|\b[A-Za-z]+-\d+\.\d+",
)
# Numbers of generated text, none of a version or of a commit in backticks.
MADE = re.compile(r"(?<![\w.`])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w]|\.\d)")
ELLIPSIS = "..."
# Said by the clock, of work that lasts: a page does not state it.
WAITING = re.compile(r"(?:compiling|at work) \.\.\. \(\d+ s")
MANY_DIGITS = 4


def same_number(stated: str, found: str) -> bool:
    """Returns whether a number is the stated one, up to the digits of the latter.

    Args:
        stated: A decimal number as a page writes it.
        found: The same as a program prints it. Where this has decimals and the stated
            number has none, that was rounded.
    """
    gap = abs(Decimal(stated) - Decimal(found))
    if re.fullmatch(r"-?\d+", stated):
        return gap <= (0 if re.fullmatch(r"-?\d+", found) else Decimal("0.5"))
    digits = len(Decimal(stated).as_tuple().digits)
    return gap <= last_unit(stated) * Decimal("1" if digits >= MANY_DIGITS else "0.5")


def same_made(stated: str, made: str) -> bool:
    """Returns whether a text is what the same stored numbers make on any machine.

    Words and whole numbers are the same; a decimal number whose last bits a library sets
    may round to the next one, one unit of the last digit away.

    Args:
        stated: What stands in a page.
        made: The same made anew.
    """
    texts = [MADE.sub("<number>", text) for text in (stated, made)]
    numbers = [MADE.findall(text) for text in (stated, made)]
    return texts[0] == texts[1] and all(map(_neighbours, *numbers))


def _neighbours(stated: str, made: str) -> bool:
    """Zeros at the end are not printed: the finer of the last digits is the unit."""
    if {True} == {re.fullmatch(r"-?\d+", text) is not None for text in (stated, made)}:
        return int(stated) == int(made)
    unit = min(last_unit(stated), last_unit(made))
    return abs(Decimal(stated) - Decimal(made)) <= unit


def last_unit(number: str) -> Decimal:
    """Returns what one unit of the last digit of a decimal number is worth.

    Args:
        number: A decimal number; its exponent, if any, counts.
    """
    exponent = Decimal(number).as_tuple().exponent
    assert isinstance(exponent, int)
    return Decimal(1).scaleb(exponent)


def same_line(stated: str, found: str) -> bool:
    """Returns whether two lines agree, up to stated digits, white space and times.

    Args:
        stated: A line of a page.
        found: A line that a program printed.
    """
    texts, numbers = [], []
    for line in (stated, found):
        line = " ".join(TIME.sub("<time>", line).split()).replace("[ ", "[")
        texts.append(NUMBER.sub("<number>", line))
        numbers.append(NUMBER.findall(line))
    return texts[0] == texts[1] and all(map(same_number, *numbers))


def difference(stated: str, found: str) -> str | None:
    """Returns the first place where an output is not what a page says, or None.

    Args:
        stated: The output that stands in the page.
        found: What was printed.

    Returns:
        One line that shows both; None where all lines agree.
    """
    wanted = [line for line in stated.splitlines() if line.strip()]
    printed = [
        line for line in found.splitlines() if line.strip() and not WAITING.search(line)
    ]
    at = 0
    for index, line in enumerate(wanted):
        if line.strip() == ELLIPSIS:
            rest = wanted[index + 1 :]
            if not rest:
                return None
            while at < len(printed) and not same_line(rest[0], printed[at]):
                at += 1
            continue
        if at == len(printed):
            return f"nothing is printed where the page says {line.strip()!r}"
        if not same_line(line, printed[at]):
            return f"{printed[at].strip()!r} is printed, {line.strip()!r} is stated"
        at += 1
    if at < len(printed):
        return f"{printed[at].strip()!r} is printed, nothing is stated"
    return None


def stated_numbers(prose: str) -> list[str]:
    """Returns the numbers of a paragraph that a program has to account for.

    Args:
        prose: Markdown; code and the targets of links are left out.

    Returns:
        Decimal numbers, and whole ones from 10 on, but those that name a section, a
        paper or a version.
    """
    prose = " ".join(prose_alone(prose).split())  # names may go across lines
    prose = TIME.sub(" ", NAME.sub(" ", prose))
    prose = re.sub(r"\b10\^", " ", prose)
    return [text for text in NUMBER.findall(prose) if not re.fullmatch(r"-?\d", text)]


def prose_alone(text: str) -> str:
    """Returns Markdown without code, targets of links, comments and values from rows.

    Args:
        text: Markdown.
    """
    made = r"<!-- value:.*?<!-- end of value -->(?:\s(?:m?s|min)\b)?|"
    pattern = rf"{made}`[^`]*`|\]\([^)]*\)|<!--.*?-->"
    return re.sub(pattern, " ", text, flags=re.DOTALL)


def unaccounted(prose: str, printed: str, written: str = "") -> list[str]:
    """Returns the numbers of a paragraph that are neither printed nor written.

    Args:
        prose: Markdown.
        printed: What the programs printed that the paragraph reports on. A printed
            number accounts for one that is stated with as many digits or fewer.
        written: Files that have to hold the others as they are stated: by chance some
            number of a file rounds to almost any.

    Returns:
        The numbers, as they are written.
    """
    available = _numbers(printed)
    literal = {Decimal(text) for text in _numbers(written)}
    return [
        stated
        for stated in stated_numbers(prose)
        if Decimal(stated) not in literal
        and not any(same_number(stated, found) for found in available)
    ]


def _numbers(text: str) -> list[str]:
    text = re.sub(r"(?<=\d)_(?=\d)", "", text)
    return NUMBER.findall(re.sub(r"[×^,;:()=\[\]]", " ", text))

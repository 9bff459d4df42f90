"""Comparison of a program's output with a page, up to the digits that the page states.

Text agrees where its words do, whatever the white space. A number that is written with a
point or an exponent agrees if it rounds to the stated digits, and, where these are four or
more, within one unit of the last, since other machines round sums in other orders; a whole
number agrees if it is the same. What was measured by a clock, a number before `s`, `ms` or
`min`, is not compared, and a line `...` stands for any lines.
"""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path

import numpy as np

TIME = re.compile(r"(?<![\w.])\d+(\.\d+)?(e[+-]?\d+)? ?(ms|s|min|seconds|minutes)\b")
NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
# Numbers that name something: a paper of a year, a statement, a section, a version.
NAME = re.compile(
    r"\b(?:[A-Z]\w+|al\.|TACL \d+|arXiv \d+\.\d+),?\s\(?(?:19|20)\d\d\b"
    r"|\((?:19|20)\d\d\)|\b20\d\d-\d\d-\d\d\b"
    r"|\b(?:[Ll]emma|[Tt]heorem|[Cc]orollary|[Ss]tep)s? \d+(?:(?:,| and| to) \d+)*"
    r"|\b[Ss]ections? \d+(\.\d+)*|\barXiv \d+\.\d+|/abs/\d+\.\d+|\d+(\.\d+){2,}"
    r"|\b[A-Za-z]+-\d+\.\d+"
)
# Numbers of generated text, none of a version or of a commit in backticks.
MADE = re.compile(r"(?<![\w.`])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?![\w]|\.\d)")
ELLIPSIS = "..."
# Said by the clock, of work that lasts: a page does not state it.
WAITING = re.compile(r"(?:compiling|at work) \.\.\. \(\d+ s")
MANY_DIGITS = 4


def same_number(stated: str, found: str) -> bool:
    """Returns whether `found` agrees with `stated`, up to the digits that `stated` has."""
    gap = abs(Decimal(stated) - Decimal(found))
    if re.fullmatch(r"-?\d+", stated):
        return gap <= (0 if re.fullmatch(r"-?\d+", found) else Decimal("0.5"))
    digits = len(Decimal(stated).as_tuple().digits)
    return gap <= last_unit(stated) * Decimal("1" if digits >= MANY_DIGITS else "0.5")


def same_made(stated: str, made: str) -> bool:
    """Returns whether two texts agree as made from the same rows on unlike machines.

    Words and whole numbers are the same; a decimal number whose last bits a library sets
    may round to the next one, one unit of the last digit away.
    """
    texts = [MADE.sub("<number>", text) for text in (stated, made)]
    numbers = [MADE.findall(text) for text in (stated, made)]
    return texts[0] == texts[1] and all(map(_neighbours, *numbers))


def _neighbours(stated: str, made: str) -> bool:
    """Whether whole numbers are equal, or others within one unit of the finer last digit."""
    if {True} == {re.fullmatch(r"-?\d+", text) is not None for text in (stated, made)}:
        return int(stated) == int(made)
    unit = min(last_unit(stated), last_unit(made))
    return abs(Decimal(stated) - Decimal(made)) <= unit


def last_unit(number: str) -> Decimal:
    """Returns the value of one unit of a decimal number's last digit."""
    exponent = Decimal(number).as_tuple().exponent
    assert isinstance(exponent, int)
    return Decimal(1).scaleb(exponent)


def same_line(stated: str, found: str) -> bool:
    """Returns whether two lines agree, up to stated digits, white space and times."""
    texts, numbers = [], []
    for line in (stated, found):
        line = " ".join(TIME.sub("<time>", line).split()).replace("[ ", "[")
        texts.append(NUMBER.sub("<number>", line))
        numbers.append(NUMBER.findall(line))
    return texts[0] == texts[1] and all(map(same_number, *numbers))


def difference(stated: str, found: str) -> str | None:
    """Returns the first place where an output differs from the stated one, or None."""
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
    """Returns the numbers of a paragraph that need a source."""
    prose = " ".join(prose_alone(prose).split())  # names may go across lines
    prose = TIME.sub(" ", NAME.sub(" ", prose))
    prose = re.sub(r"\b10\^", " ", prose)
    return [text for text in NUMBER.findall(prose) if not re.fullmatch(r"-?\d", text)]


def prose_alone(text: str) -> str:
    """Returns Markdown without code, targets of links, comments and values from rows."""
    made = r"<!-- value:.*?<!-- end of value -->(?:\s(?:m?s|min)\b)?|"
    pattern = rf"{made}`[^`]*`|\]\([^)]*\)|<!--.*?-->"
    return re.sub(pattern, " ", text, flags=re.DOTALL)


def unaccounted(prose: str, printed: str, written: str = "") -> list[str]:
    """Returns the numbers of a paragraph found neither in `printed` nor in `written`."""
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


SECONDS = re.compile(r"\bseconds\b|\btime\b")


def find_tables(text: str) -> dict[str, str]:
    """Returns the text between two marks of a page, by the name in the marks."""
    rows = re.compile(r"<!-- rows of (\w+) -->\n(.*?)\n<!-- rows of \1 -->", re.DOTALL)
    named = re.compile(r"<!-- (\w+) -->\n(.*?)\n<!-- end of \1 -->", re.DOTALL)
    return dict(rows.findall(text)) | dict(named.findall(text))


def function_tables() -> dict[str, Callable[[], str]]:
    """Returns functions that make tables, by the names of the tables' marks."""
    from bounds.entropy.audit import TABLES
    from bounds.lemma5.audit import all_findings, findings_table, harmonic_table

    audits: dict[str, Callable[[], str]] = {
        "findings": lambda: findings_table(all_findings()),
        "harmonic": harmonic_table,
    }
    return audits | dict(TABLES)


def table_difference(stated: str, found: str) -> str | None:
    """Returns the first row in which two tables differ, or None."""
    left, right = stated.strip().splitlines(), found.strip().splitlines()
    if len(left) != len(right):
        return f"{len(left)} lines are stated, {len(right)} are made"
    timed: set[int] = set()
    for wanted, made in zip(left, right, strict=True):
        cells = [line.split("|") for line in (wanted, made)]
        if set(wanted) <= set("|- "):
            continue
        if timed_now := {k for k, c in enumerate(cells[0]) if SECONDS.search(c)}:
            timed = timed_now
        if len(cells[0]) != len(cells[1]) or not all(
            same_line(a, b)
            for k, (a, b) in enumerate(zip(*cells, strict=True))
            if k not in timed
        ):
            return f"{made.strip()!r} is made, {wanted.strip()!r} is stated"
    return None


# Fonts and rasterisation differ a little between machines; a point that moves changes more.
SHADE = 0.25  # of the range of a colour
SHARE = 0.01  # of what is drawn: a picture is white almost everywhere


def image_difference(stated: Path, drawn: Path) -> str | None:
    """Returns words on the difference of two pictures, or None."""
    from matplotlib.image import imread

    if not drawn.is_file():
        return f"{drawn.name} was not drawn"
    one, other = (np.asarray(imread(path)[..., :3]) for path in (stated, drawn))
    if one.shape != other.shape:
        return f"{stated.name} is {one.shape[:2]} pixels, drawn are {other.shape[:2]}"
    changed = int((np.abs(one - other).max(-1) > SHADE).sum())
    ink = int((np.minimum(one, other).min(-1) < 1 - SHADE).sum())
    if changed <= SHARE * ink:
        return None
    share = 100 * changed / ink
    return f"{share:.1f} percent of what {stated.name} shows is not as drawn now"


def missing_figures(folder: Path, pages: Iterable[Path]) -> list[str]:
    """Names of a folder's figures that no page shows."""
    text = "".join(page.read_text() for page in pages)
    shown = set(re.findall(r"\]\((?:\.\./|docs/)?figures/([\w.-]+)\)", text))
    return sorted({path.name for path in folder.iterdir()} - shown)


def broken_links(page: Path) -> list[str]:
    """Returns the targets of a page's links to files that do not exist."""
    targets = re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text())
    return [
        target
        for target in targets
        if not re.match(r"[a-z]+:", target) and not (page.parent / target).exists()
    ]

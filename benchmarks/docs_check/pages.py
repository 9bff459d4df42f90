"""Markdown pages, taken apart: fenced and indented blocks, paragraphs and their marks.

A mark is an HTML comment on the line above a block or a paragraph and says how it is
checked: `<!-- check: WHEN, reason; WHAT -->`, both parts optional. Those of README.md
stand in `marks.toml`.

WHEN is `minutes` (takes minutes), `devices` (wants accelerators), `peers` (wants another
package): listed, and run with --all; or `never` (there is nothing here to run it on).
WHAT is `output of COMMAND`, `error of COMMAND` (what it prints), `text NAME` (bound to that
name in the page's Python), `draws FILE` or `draws FILE as NAME` (a figure of the docs).

Of a paragraph, or a table that no program writes, a mark says where its numbers come from,
one or more of: `numbers of COMMAND` (among those that it prints), `numbers above` and
`numbers below` (among those of the blocks and generated tables before or behind it, which
are checked themselves) and `numbers in FILE FILE` (files of the repository that hold each as
it is stated, unrounded: a test that asserts them, a constant of the source).
"""

import dataclasses
import re
import tomllib
from pathlib import Path

from benchmarks.docs_check.commands import ROOT
from jax_models import InputError

FILE = Path(__file__).with_name("marks.toml")
_CHECK = re.compile(r"(?m)^<!-- check: .* -->$")
_VALUE = re.compile(r"<!-- value: [^>]* -->(.*?)<!-- end of value -->")


def marked_text(page: Path, root: Path = ROOT) -> str:
    """Text of a page below `root`, with the marks put in that `marks.toml` has for it.

    Raises InputError where the words of a mark do not stand in the page exactly once.
    """
    text = page.read_text()
    for mark in _marks_of(page, root):
        if "check" in mark:
            words, found = mark["above"], rf"(?<=\n)\n(?={_spaced(mark['above'])})"
            new = f"<!-- check: {mark['check']} -->\n"
        else:
            words, found = mark["before"], rf"({_spaced(mark['before'])}\s+)(\S+)"
            new = rf"\1<!-- value: {mark['value']} -->\2<!-- end of value -->"
        text, count = re.subn(found, new, text)
        if count != 1:
            raise InputError(
                f"{FILE.name}: {words!r} stands {count} times in {page.name}, expected one; "
                "name other words"
            )
    return text


def without_marks(text: str, page: Path, root: Path = ROOT) -> str:
    """Text of a page without the marks of `marks.toml`, as its file holds it."""
    if not _marks_of(page, root):
        return text
    return _VALUE.sub(r"\1", _CHECK.sub("", text))


def _marks_of(page: Path, root: Path) -> list[dict[str, str]]:
    """Entries of `marks.toml` for a page; none if the page is not below `root`."""
    if not page.is_relative_to(root):
        return []
    return tomllib.loads(FILE.read_text()).get(str(page.relative_to(root)), [])


def _spaced(words: str) -> str:
    """Regular expression for words with any white space between them."""
    return r"\s+".join(map(re.escape, words.split()))


WHEN = ("minutes", "devices", "peers", "never")
WHAT = ("output of", "error of", "text", "draws")
SOURCES = ("numbers of", "numbers above", "numbers below", "numbers in")
GENERATED = re.compile(r"<!-- (rows of \w+|results: .*|\w+) -->$")
SHELL = re.compile(r"(attention-bounds|python -m|python|make|pip)\s\S")
INLINE = re.compile(r"`((?:attention-bounds [a-z]|python -m |make ).*?)`", re.DOTALL)
NOT_A_VALUE = re.compile(r"FILE|\.\.\.|\b[A-Z]$|=[A-Z]\b| [A-Z]\b")


@dataclasses.dataclass(frozen=True)
class Mark:
    """Instructions on checking a block or a paragraph.

    Attributes:
        when: One of `WHEN`, or empty: always.
        reason: Why not always.
        what: One of `WHAT`, or empty: by what the block is.
        argument: The command or the name that belongs to it.
        sources: Where its numbers come from: pairs of one of `SOURCES` and its argument.
    """

    when: str = ""
    reason: str = ""
    what: str = ""
    argument: str = ""
    sources: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class Block:
    """A part of a page: code, prose, a table or generated text.

    Attributes:
        page: The file.
        line: The number of its first line, from 1.
        language: What stands behind the fence; without one "indented", "paragraph",
            "table", or "generated" for what stands between two marks of a program.
        text: What it holds.
        mark: How it is checked.
        follows: Whether only blank lines stand between it and the block before.
    """

    page: Path
    line: int
    language: str
    text: str
    mark: Mark = Mark()
    follows: bool = False

    @property
    def place(self) -> str:
        """File and line, as editors read it."""
        return f"{self.page}:{self.line}"

    @property
    def is_shell(self) -> bool:
        """Whether the block is command lines."""
        return self.language in ("", "indented", "sh") and bool(SHELL.match(self.text))

    @property
    def is_paragraph(self) -> bool:
        """Whether the block is prose."""
        return self.language == "paragraph"

    @property
    def is_typed(self) -> bool:
        """Whether the block is prose or a table, which nothing runs."""
        return self.language in ("paragraph", "table")


def read_mark(text: str, place: str) -> Mark:
    """Returns the mark that a comment's text describes; raises `InputError` for another."""
    mark = Mark()
    for part in re.split(r";\s+", text.strip()):
        when, _, reason = part.partition(",")
        what = next((w for w in (*WHAT, *SOURCES) if re.match(rf"{w}\b", part)), None)
        if when in WHEN:
            mark = dataclasses.replace(mark, when=when, reason=reason.strip())
        elif what in SOURCES:
            source = (what, part.removeprefix(what).strip())
            mark = dataclasses.replace(mark, sources=(*mark.sources, source))
        elif what is not None:
            argument = part.removeprefix(what).strip()
            mark = dataclasses.replace(mark, what=what, argument=argument)
        else:
            raise InputError(
                f"{place}: the mark says {part!r}; expected one of "
                f"{', '.join((*WHEN, *WHAT, *SOURCES))}"
            )
    if mark.when and mark.when != "minutes" and not mark.reason:
        raise InputError(f"{place}: the mark {mark.when!r} needs a reason behind it")
    return mark


def read_page(path: Path) -> list[Block]:
    """Returns the blocks and paragraphs of a page, in order."""
    lines = marked_text(path).splitlines()
    blocks: list[Block] = []
    mark, at, adjacent = Mark(), 0, False
    while at < len(lines):
        line, start = lines[at], at + 1
        place = f"{path}:{start}"
        if line.startswith("<!-- check: "):
            while "-->" not in lines[at]:
                at += 1
            text = " ".join(lines[start - 1 : at + 1])
            text = re.sub(r"^<!-- check: |\s*-->\s*$", "", text)
            mark, at = read_mark(text, place), at + 1
            continue
        if (end := _generated_end(lines, at)) is not None:
            text, language, at = "\n".join(lines[at + 1 : end]), "generated", end + 1
        elif line.startswith("```"):
            end = at + 1
            while end < len(lines) and not lines[end].startswith("```"):
                end += 1
            if end == len(lines):
                raise InputError(f"{place}: this fence is not closed")
            text, language = "\n".join(lines[at + 1 : end]), line[3:].strip()
            at = end + 1
        elif line.strip():
            end = at
            while end < len(lines) and lines[end].strip():
                if end > at and re.match(r"```|<!-- check:", lines[end]):
                    break
                if end > at and _generated_end(lines, end) is not None:
                    break
                end += 1
            text, at = "\n".join(lines[at:end]), end
            language = "paragraph"
            if line.startswith("    ") and SHELL.match(line.strip()):
                text, language = re.sub(r"(?m)^    ", "", text), "indented"
            elif line.startswith("|"):
                language = "table"
            elif re.match(r"#|!\[|<!--", line):
                adjacent, mark = False, Mark()
                continue
        else:
            at += 1
            continue
        blocks.append(Block(path, start, language, text, mark, adjacent))
        mark, adjacent = Mark(), not blocks[-1].is_typed
    return blocks


def _generated_end(lines: list[str], at: int) -> int | None:
    """Returns the line of the second mark if line `at` is a program's first, or None."""
    found = GENERATED.match(lines[at])
    if found is None:
        return None
    name = re.sub("^results: .*", "results", found[1])
    second = f"<!-- {name if name.startswith('rows of') else f'end of {name}'} -->"
    return lines.index(second, at + 1) if second in lines[at + 1 :] else None


def split_commands(text: str) -> tuple[list[str], str]:
    """Returns a shell block's command lines, and the output below them."""
    head, _, output = text.partition("\n\n")
    joined = re.sub(r"(?m)\s+#\s.*$", "", head).replace("\\\n", " ")
    lines = (" ".join(line.split()) for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")], output


def inline_commands(block: Block) -> list[str]:
    """Returns the command lines quoted in the sentences of a paragraph."""
    found = (" ".join(text.split()) for text in INLINE.findall(block.text))
    return [text for text in found if not NOT_A_VALUE.search(text)]

"""Marks of pages that read plainly in an editor: they stand in `marks.toml`, by words.

The text of such a page with its marks is what pages with marks of their own look like
(`benchmarks.docs_check.pages`, `benchmarks.row_value`), line by line: the mark of a
paragraph takes the place of the blank line above it.
"""

import re
import tomllib
from pathlib import Path

from benchmarks.docs_check.commands import ROOT
from jax_models import InputError

FILE = Path(__file__).with_name("marks.toml")
_CHECK = re.compile(r"(?m)^<!-- check: .* -->$")
_VALUE = re.compile(r"<!-- value: [^>]* -->(.*?)<!-- end of value -->")


def marked_text(page: Path, root: Path = ROOT) -> str:
    """Text of a page below a root, with its marks of `marks.toml` put in.

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
    """Marked text of a page as its file holds it."""
    if not _marks_of(page, root):
        return text
    return _VALUE.sub(r"\1", _CHECK.sub("", text))


def _marks_of(page: Path, root: Path) -> list[dict[str, str]]:
    """Marks that `marks.toml` has of a page, none of one that is not below the root."""
    if not page.is_relative_to(root):
        return []
    return tomllib.loads(FILE.read_text()).get(str(page.relative_to(root)), [])


def _spaced(words: str) -> str:
    """Pattern of some words, whatever white space stands between them."""
    return r"\s+".join(map(re.escape, words.split()))

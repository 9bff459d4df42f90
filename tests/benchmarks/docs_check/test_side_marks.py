"""README.md reads plainly: its marks stand in a file of their own."""

import pytest

from benchmarks.docs_check import pages
from benchmarks.docs_check.commands import ROOT
from benchmarks.docs_check.pages import marked_text, read_page, without_marks
from tests.bounds.influence.expect import refused

PLAIN = "# A\n\nTen of\n30 are 2.5.\n\nMore of 4.\n"
MARKS = """
[["a.md"]]
above = "Ten of 30"
check = "numbers above"

[["a.md"]]
before = "More of"
value = "x on y, z, n=4"
"""
MARKED = (
    "# A\n<!-- check: numbers above -->\nTen of\n30 are 2.5.\n\n"
    "More of <!-- value: x on y, z, n=4 -->4.<!-- end of value -->\n"
)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page without marks, and a file that has them."""
    monkeypatch.setattr(pages, "FILE", tmp_path / "marks.toml")
    (tmp_path / "marks.toml").write_text(MARKS)
    (tmp_path / "a.md").write_text(PLAIN)
    return tmp_path / "a.md"


def test_marks_stand_where_a_page_would_have_them(page):
    text = marked_text(page, page.parent)
    assert text == MARKED
    assert without_marks(text, page, page.parent) == PLAIN


def test_a_page_elsewhere_and_another_page_have_none_of_them(page, tmp_path):
    assert marked_text(page, page.parent / "docs") == PLAIN
    other = tmp_path / "b.md"
    other.write_text(MARKED)
    assert marked_text(other, tmp_path) == MARKED
    assert without_marks(MARKED, other, tmp_path) == MARKED


@pytest.mark.parametrize("text", ["# A\n", PLAIN + "\n" + PLAIN], ids=["none", "two"])
def test_words_that_are_not_there_once_are_refused(page, text):
    page.write_text(text)
    with refused(r"Ten of 30.*expected one"):
        marked_text(page, page.parent)


def test_readme_has_no_comments_and_blocks_at_their_lines():
    readme = ROOT / "README.md"
    plain = readme.read_text()
    assert "<!--" not in plain
    lines = plain.splitlines()
    for block in read_page(readme):
        at = block.line if block.language in ("python", "") else block.line - 1
        assert lines[at] in block.text
    assert any(block.mark.sources for block in read_page(readme))

"""What can be said of the documentation without running its commands."""

import re

import pytest

from benchmarks.docs_check import agreement, api_page
from benchmarks.docs_check.__main__ import all_pages
from benchmarks.docs_check.commands import ROOT, refusal
from benchmarks.docs_check.page_check import untied
from benchmarks.docs_check.pages import inline_commands, read_page, split_commands

PAGES = all_pages()


def command_lines(page):
    """Returns the command lines of a page that this process can judge."""
    found = []
    for block in read_page(page):
        if block.is_paragraph:
            found += inline_commands(block)
        elif block.is_shell:
            found += split_commands(block.text)[0]
        if block.mark.what == "output of":
            found.append(block.mark.argument)
        found += [line for kind, line in block.mark.sources if kind == "numbers of"]
    # A benchmark is asked in a process of its own: `make docs-check` does that.
    return [line for line in found if "benchmarks." not in line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_line_would_be_accepted(page):
    assert [line for line in command_lines(page) if refusal(line)] == []


# Command lines, and whether they would be accepted.
LINES = {
    "attention-bounds curved": False,
    "attention-bounds curve --length 16": False,
    "python -m benchmarks.no_such_question": False,
    "python -m bounds.lemma5.audit --x=1": False,
    "python -c 'import ('": False,
    "make tests-of-all": False,
    "make bench FLAGS=--refresh": False,
    "make docs-check FLAGS='--all --page=README.md'": False,
    "pip install 'attention-bounds[gpu]'": False,
    "rm -r results": False,
    "make test JOBS=0 FLAGS=-x": True,
    "make bench FLAGS='--only=roofline --fresh'": True,
    "python -m benchmarks.pages --check": True,
}


@pytest.mark.parametrize("line", LINES)
def test_a_command_line_with_a_mistake_is_refused_and_no_other(line):
    assert (refusal(line) is None) == LINES[line]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_results_are_tied_to_what_makes_them_and_python_compiles(
    page,
):
    assert agreement.broken_links(page) == []
    assert [block.place for block in read_page(page) if untied(block)] == []
    for block in read_page(page):
        if block.language == "python":
            compile(block.text, block.place, "exec")


def test_a_link_to_nowhere_is_noticed(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#part) [b](https://a.b) [c](gone.md)")
    assert agreement.broken_links(page) == ["gone.md"]


def test_every_figure_is_shown():
    assert agreement.missing_figures(ROOT / "docs" / "figures", PAGES) == []


def test_a_figure_that_no_page_shows_is_noticed(tmp_path):
    (tmp_path / "figures").mkdir()
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / "figures" / name).touch()
    (tmp_path / "a.md").write_text("![A](figures/a.png) ![C](docs/figures/c.png)")
    shown = agreement.missing_figures(tmp_path / "figures", [tmp_path / "a.md"])
    assert shown == ["b.png"]


def listed(contents):
    """Pages that a table of contents links to."""
    links = re.findall(r"\]\(([\w./-]+\.md)\)", contents.read_text())
    return {(contents.parent / link).resolve() for link in links}


def test_the_table_of_contents_lists_every_page():
    contents = ROOT / "docs" / "README.md"
    assert set(PAGES) - {contents} <= listed(contents)


def test_every_page_opens_with_what_it_is_for():
    for page in PAGES:
        title, opening = page.read_text().split("\n\n")[:2]
        assert title.startswith("# "), page
        assert re.match(r"[\w*`]", opening), page


def test_pages_are_short():
    """Cut what repeats other pages and what nobody asks for where this fails."""
    workspace = ROOT / "WORKSPACE.md"
    lines = {page: page.read_text().count("\n") for page in (*PAGES, workspace)}
    assert lines[workspace] <= 200
    assert sum(lines.values()) <= 5500


def test_a_page_made_of_code_is_current():
    """Run `python -m benchmarks.docs_check.api_page` where this fails."""
    assert api_page.PAGE.read_text() == api_page.page_text()

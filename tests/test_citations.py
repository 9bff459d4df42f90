"""Citations: every page, section and statement that the code names is in the repository.

A page is cited by its path, `docs/theory/parity.md`, sections of it behind that, `section 2`
or `sections 1, 3 and 4.2`, and statements behind these, `Lemma 7` or `Theorem 21-U`. Any
other section is one of the literature, behind the year: `Hahn 2020, section 5`.
"""

import ast
import functools
import itertools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("jax_models", "bounds", "benchmarks", "tests")
# They hold pages and citations of their own making.
MADE_UP = ("tests/benchmarks", "tests/test_citations.py")
NUMBERS = r"\d+(?:\.\d+)*(?:(?:, | and |, and | to )\d+(?:\.\d+)*)*"
PAGE = re.compile(r"(?<![\w/.-])([\w./-]+\.md)\b")
SECTIONS = re.compile(rf"\bsections? ({NUMBERS})")
STATEMENT = re.compile(r"(?:Lemma|Theorem|Corollary) \d+[\w'-]*")
STATEMENTS = re.compile(
    rf"[,;(]* ?\(?({STATEMENT.pattern}(?:(?:,| and|;) {STATEMENT.pattern})*)"
)
OF_LITERATURE = re.compile(r"(?:19|20)\d\d\)?,? $")
NOWHERE = re.compile(r"\bthe spec\b|\bformat page\b")
WORDS = re.compile(rf"\.md\b|\bsections? \d|{NOWHERE.pattern}")


def texts(source):
    """Yields the strings and the comments of a Python file, each on one line."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())
    comments = [
        (number, line.strip().lstrip("# "))
        for number, line in enumerate(source.splitlines())
        if line.lstrip().startswith("#")
    ]
    runs = itertools.groupby(enumerate(comments), lambda pair: pair[1][0] - pair[0])
    for _, run in runs:
        yield " ".join(text for _, (_, text) in run)


def sections_of(page):
    """Returns the numbered sections of a page with their texts; a part is in its whole."""
    parts = re.split(r"(?m)^#{2,4} (\d+(?:\.\d+)*)\.? ", page)
    found = dict(zip(parts[1::2], parts[2::2], strict=True))
    return {
        number: "".join(
            text
            for other, text in found.items()
            if other == number or other.startswith(number + ".")
        )
        for number in found
    }


def listed(numbers):
    """Returns the sections of `2, 3.1 and 5 to 7`."""
    found = []
    for part in re.split(r",? and |, ", numbers):
        first, _, last = part.partition(" to ")
        found += map(str, range(int(first), int(last) + 1)) if last else [first]
    return found


def flaws(text, root=ROOT):
    """Returns what a text cites that is not there."""
    found, known = [], set()
    for page in PAGE.finditer(text):
        path = next(
            filter(Path.is_file, (root / page[1], root / "docs" / page[1])), None
        )
        if path is None:
            found.append(f"no page {page[1]}")
            continue
        cited = re.compile(rf",? {SECTIONS.pattern}").match(text, page.end())
        if cited is None:
            continue
        known.add(cited.start(1))
        sections = sections_of(path.read_text())
        missing = [n for n in listed(cited[1]) if n not in sections]
        found += [f"no section {number} in {page[1]}" for number in missing]
        statements = STATEMENTS.match(text, cited.end())
        whole = "".join(sections.get(n, "") for n in listed(cited[1]))
        for name in STATEMENT.findall(statements[1]) if statements else ():
            if not re.search(rf"{re.escape(name)}(?![\w'-])", whole):
                found.append(f"no {name} in section {cited[1]} of {page[1]}")
    for cited in SECTIONS.finditer(text):
        literature = OF_LITERATURE.search(text, 0, cited.start())
        if cited.start(1) not in known and literature is None:
            found.append(f"section {cited[1]} of nothing: …{text[: cited.end()][-60:]}")
    return found + [f"cites {word}" for word in NOWHERE.findall(text)]


@functools.cache
def cited():
    """Returns the files that may cite something, with their texts."""
    found = []
    for path in (path for f in FOLDERS for path in sorted((ROOT / f).rglob("*.py"))):
        name, source = str(path.relative_to(ROOT)), path.read_text()
        if not name.startswith(MADE_UP) and WORDS.search(source):
            found.append((name, list(texts(source))))
    return found


def test_every_citation_of_the_code_leads_somewhere():
    found = {
        name: wrong
        for name, lines in cited()
        if (wrong := [w for text in lines for w in flaws(text)])
    }
    assert found == {}


def test_citations_are_found():
    pages = [
        page[1] for _, lines in cited() for t in lines for page in PAGE.finditer(t)
    ]
    assert sum(page.startswith("docs/theory/") for page in pages) > 60


def astray(page):
    """Returns the sections of other pages that a page links to and that are not there."""
    text = " ".join(page.read_text().split())
    return [
        f"{target}, section {number}"
        for target, numbers in re.findall(
            rf"\]\(([\w./-]+\.md)\),? {SECTIONS.pattern}", text
        )
        for number in listed(numbers)
        if number not in sections_of((page.parent / target).read_text())
    ]


def test_pages_name_sections_of_other_pages_that_are_there():
    pages = sorted((ROOT / "docs").rglob("*.md"))
    assert {page.name: wrong for page in pages if (wrong := astray(page))} == {}


def test_a_page_that_names_a_section_that_is_not_there_is_noticed(root):
    page = root / "docs" / "b.md"
    page.write_text("As in [a](a.md), sections 2.1 and\n3, and [a](a.md), section 1.")
    assert astray(page) == ["a.md, section 3"]


@pytest.fixture
def root(tmp_path):
    """A repository of one page."""
    (tmp_path / "docs").mkdir()
    page = (
        "# A\n## 1. One\nLemma 7.\n## 2. Two\n### 2.1 A part\nTheorem 8-T\n### 2.2 B\n"
    )
    (tmp_path / "docs" / "a.md").write_text(page)
    return tmp_path


THERE = [
    "docs/a.md.",
    "docs/a.md, section 1, Lemma 7.",
    "docs/a.md, sections 1 and 2.1 (Theorem 8-T)",
    "docs/a.md, section 2, Theorem 8-T; Hahn 2020, section 5",
    "docs/a.md, sections 1 to 2",
]
NOT_THERE = [
    "docs/b.md",
    "hard-attention.md, section 1",
    "docs/a.md, section 3",
    "docs/a.md, sections 1 and 4",
    "docs/a.md, sections 1, 2.1 and 2.3",
    "docs/a.md, section 1, Lemma 8",
    "docs/a.md, section 2, Theorem 8",
    "exact influence, section 2",
    "docs/a.md (section 1)",
    "as the spec takes it",
]


@pytest.mark.parametrize("text", THERE + NOT_THERE)
def test_what_is_not_there_is_noticed_and_what_is_there_may_be_cited(root, text):
    assert (flaws(text, root) == []) == (text in THERE)


def test_a_citation_is_read_across_lines():
    source = (
        '"""See docs/b.md,\n    section\n    1."""\n# docs/b.md,\n# section 2\n'
        'x = "docs/b.md, " "section 3"\n'
    )
    assert [flaws(text) for text in texts(source)] == [
        ["no page docs/b.md", "section 1 of nothing: …See docs/b.md, section 1"],
        ["no page docs/b.md", "section 3 of nothing: …docs/b.md, section 3"],
        ["no page docs/b.md", "section 2 of nothing: …docs/b.md, section 2"],
    ]

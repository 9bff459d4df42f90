"""Pages are taken apart into what is run, what is compared and what is neither."""

import pytest

from benchmarks.docs_check.pages import (
    Mark,
    inline_commands,
    read_mark,
    read_page,
    split_commands,
)
from tests.bounds.influence.expect import refused

PAGE = """# Title

Words with `python -m benchmarks.timing
--x=1` and `attention-bounds restrict --verify FILE`.

```
attention-bounds depth --num_layers 3 \\
    --num_heads 2    # a comment
```

```
3 layers
```
<!-- check: minutes, it trains;
     numbers of attention-bounds curve -->
About 0.5.
<!-- check: text program -->
```
return out
```

    make test

```python
1 + 1  # 2
```
"""


CURVE = ("numbers of", "attention-bounds curve")


@pytest.fixture
def blocks(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return read_page(path)


def test_blocks_come_in_order_with_their_lines_and_marks(blocks):
    plain = Mark()
    # A mark belongs to the block below it alone.
    expected = [
        (3, "paragraph", False, False, plain),
        (6, "", False, True, plain),
        (11, "", True, False, plain),
        (16, "paragraph", True, False, Mark("minutes", "it trains", sources=(CURVE,))),
        (18, "", False, False, Mark(what="text", argument="program")),
        (22, "indented", True, True, plain),
        (24, "python", True, False, plain),
    ]
    assert expected == [
        (block.line, block.language, block.follows, block.is_shell, block.mark)
        for block in blocks
    ]
    for block in blocks:
        first = block.text.splitlines()[0]
        shown = PAGE.splitlines()[block.line - 1 : block.line + 1]
        assert any(first in line for line in shown)


def test_continued_lines_are_one_command_and_comments_none(blocks):
    assert split_commands(blocks[1].text) == (
        ["attention-bounds depth --num_layers 3 --num_heads 2"],
        "",
    )
    assert split_commands("make test\n\nprinted\n\nmore") == (
        ["make test"],
        "printed\n\nmore",
    )


def test_commands_in_sentences_are_found_unless_a_value_is_left_open(blocks):
    assert inline_commands(blocks[0]) == ["python -m benchmarks.timing --x=1"]


def test_a_mark_names_several_sources():
    mark = read_mark("numbers above; numbers in a.py b.py", "page:1")
    assert mark.sources == (("numbers above", ""), ("numbers in", "a.py b.py"))


def test_tables_are_blocks_and_what_programs_write_is_one(tmp_path):
    path = tmp_path / "page.md"
    path.write_text(
        "| a |\n| 1 |\n\n<!-- rows of x -->\n* two\n\n* three\n<!-- rows of x -->\n\n"
        "<!-- y -->\nfour\n<!-- end of y -->\nWords.\n\n<!-- z -->\n"
        "<!-- results: y on z -->\n| 5 |\n<!-- end of results -->\n"
    )
    found = [(b.line, b.language, b.text) for b in read_page(path)]
    assert found == [
        (1, "table", "| a |\n| 1 |"),
        (4, "generated", "* two\n\n* three"),
        (10, "generated", "four"),
        (13, "paragraph", "Words."),
        (16, "generated", "| 5 |"),
    ]


@pytest.mark.parametrize("text", ["soon", "never", "devices", "outputs of ls"])
def test_a_mark_that_says_nothing_is_refused(text):
    with refused(r"page:1"):
        read_mark(text, "page:1")


def test_an_open_fence_is_refused(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("```python\n1 + 1\n")
    with refused("not closed"):
        read_page(path)

"""Writes docs/columns.md: the columns of every CSV and the keys of every JSON.

`python -m benchmarks.docs_check.columns_page` writes the page from
`bounds.cli.shared.columns`, which the tests of the commands hold against what they write.
"""

import collections
from collections.abc import Sequence

from absl import app

from benchmarks.docs_check.commands import ROOT
from bounds.cli.shared.columns import FILES, HEAD, WORDS
from bounds.store.output import write_bytes

PAGE = ROOT / "docs" / "columns.md"
START = """# The columns of every CSV and the keys of every JSON

What each column and key of a command's files holds. For people who read them by program.

Made from `bounds/cli/shared/columns.py` by `python -m benchmarks.docs_check.columns_page`; do
not edit. JSON has null where there is no number, CSV nothing. Some columns are there only on
request; `*` stands for a length or a name. The store, `results.sqlite`, has the same names
([`bounds.read_store`](api.md)), and that of a sweep is the table of `batch.csv`.

"""
SHARED = """## Names that mean the same in every file

| name | what it holds |
| --- | --- |
"""
EACH = """
## The files

The line of a file lists its names from the table above; the lines below it are its own.
"file.json, key" is the value of that key.

| file | name | what it holds |
| --- | --- | --- |
"""


# Files whose keys another page explains.
ELSEWHERE = {
    "certificate.json": "as in [the file](certificates-of-restrictions.md#1-the-file)"
}


def page_text() -> str:
    """Returns the text of docs/columns.md."""
    uses = collections.Counter(
        name
        for words in FILES.values()
        for name, text in words.items()
        if text == WORDS.get(name)
    )
    shared = {name: WORDS[name] for name in HEAD}
    shared |= {name: WORDS[name] for name, count in uses.items() if count > 1}
    lines = []
    for file, words in FILES.items():
        own = {name: text for name, text in words.items() if shared.get(name) != text}
        also = [f"`{name}`" for name in words if name not in own and name not in HEAD]
        every = ["those of every JSON"] if set(HEAD) <= words.keys() else []
        if file in ELSEWHERE:
            also, own = [*also, ELSEWHERE[file]], {}
        lines.append(f"| **{file}** | | {', '.join(every + also)} |\n")
        lines += [f"| | `{name}` | {_cell(text)} |\n" for name, text in own.items()]
    first = "".join(
        f"| `{name}`{' (every JSON)' if name in HEAD else ''} | {_cell(text)} |\n"
        for name, text in shared.items()
    )
    return START + SHARED + first + EACH + "".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", chr(92) + "|")


def main(arguments: Sequence[str]) -> None:
    """Writes docs/columns.md."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    write_bytes(PAGE, page_text().encode())


if __name__ == "__main__":
    app.run(main)

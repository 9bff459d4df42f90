"""Writes docs/columns.md: the columns of every CSV and the keys of every JSON.

`python -m benchmarks.docs_check.columns_page` writes the page from
`bounds.cli.shared.columns`, which the tests of the commands hold against what they write.
"""

from collections.abc import Sequence

from absl import app

from benchmarks.docs_check.commands import ROOT
from bounds.cli.shared.columns import FILES, HEAD, WORDS
from bounds.store.output import write_bytes

PAGE = ROOT / "docs" / "columns.md"
START = """# The columns of every CSV and the keys of every JSON

Made from `bounds/cli/shared/columns.py` by
`python -m benchmarks.docs_check.columns_page`; do not edit. JSON has null where there is no
number, CSV nothing. Some columns are there only where they were asked for; `*` stands for a
length or a name. The store, `results.sqlite`, has the same names
([`bounds.read_store`](api.md)), and that of a sweep is the table of `batch.csv`.

Every JSON has

| key | what it holds |
| --- | --- |
"""


def page_text() -> str:
    """Returns the whole page."""
    parts = [START + _rows({name: WORDS[name] for name in HEAD})]
    for file, words in FILES.items():
        kind = "column" if file.endswith(".csv") else "key"
        own = {k: v for k, v in words.items() if kind == "column" or k not in HEAD}
        head = f"## {file}\n\n"
        if own:
            head += f"| {kind} | what it holds |\n| --- | --- |\n{_rows(own)}"
        else:
            head += "Nothing else.\n"
        parts.append(head)
    return "\n".join(parts)


def _rows(words: dict[str, str]) -> str:
    return "".join(
        f"| `{name}` | {text.replace('|', chr(92) + '|')} |\n"
        for name, text in words.items()
    )


def main(arguments: Sequence[str]) -> None:
    """Writes the page."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    write_bytes(PAGE, page_text().encode())


if __name__ == "__main__":
    app.run(main)

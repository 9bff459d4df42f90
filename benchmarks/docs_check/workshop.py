"""A folder in which a page is run: a copy of the pages, and the stores that are at hand.

Command lines of the pages write into `docs/` and `results/`; here these are copies, so that
what a command makes can be compared with what stands in the repository, which stays as it
is.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.docs_check.commands import ROOT


@contextlib.contextmanager
def open_workshop(results: Path | None) -> Iterator[Path]:
    """Yields a new folder with copies of README.md, docs/ and of the stores.

    Args:
        results: Where folders with `results.sqlite` are looked for; None for none.
    """
    with tempfile.TemporaryDirectory(prefix="docs-check-") as name:
        folder = Path(name)
        shutil.copy(ROOT / "README.md", folder)
        shutil.copytree(ROOT / "docs", folder / "docs")
        if results is not None:
            for store in results.glob("*/results.sqlite"):
                target = folder / "results" / store.parent.name
                target.mkdir(parents=True)
                shutil.copy(store, target)
        yield folder


def store_of(command: str, folder: Path) -> bool:
    """Returns whether a benchmark finds its store in the folder where it runs.

    Args:
        command: `python -m benchmarks.NAME` and its flags.
        folder: The workshop.
    """
    name = command.partition("benchmarks.")[2].split()[:1]
    return bool(name) and (folder / "results" / name[0] / "results.sqlite").is_file()

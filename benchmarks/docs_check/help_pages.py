"""Writes bounds/cli/help/: what `COMMAND --help` prints, made from the flags.

`python -m benchmarks.docs_check.help_pages` writes a file for each command, so that help
is there at once; `tests/bounds/cli/test_main.py` holds them against the flags.
"""

from collections.abc import Sequence

from absl import app

from benchmarks.docs_check.commands import ROOT
from bounds.cli.main import COMMANDS, command_help
from bounds.store.output import write_bytes

FOLDER = ROOT / "bounds" / "cli" / "help"


def main(arguments: Sequence[str]) -> None:
    """Writes a file with the help of each command."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    FOLDER.mkdir(exist_ok=True)
    for command in COMMANDS.values():
        write_bytes(FOLDER / f"{command.name}.txt", command_help(command).encode())


if __name__ == "__main__":
    app.run(main)

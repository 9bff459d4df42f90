"""Writes bounds/cli/help/: what `COMMAND --help` prints, made from the flags.

`python -m benchmarks.docs_check.help_pages` writes a file for each command, so that help
is there at once; `tests/bounds/cli/test_main.py` holds them against the flags.
"""

import inspect
import textwrap
from collections.abc import Sequence

from absl import app

from benchmarks.docs_check.commands import ROOT
from bounds.batch.specification import typed
from bounds.cli.main import COMMANDS, Command
from bounds.cli.shared.options import Declared, fields_of
from bounds.cli.signals import PROGRAM
from bounds.store.output import write_bytes

FOLDER = ROOT / "bounds" / "cli" / "help"
WIDTH, INDENT = 79, 6 * " "


def command_help(command: Command) -> str:
    """Help of a command: usage, its module's docstring, flags and examples.

    The last paragraph of the docstring is the flags of the examples.
    """
    *description, examples = (inspect.getdoc(command.load()) or "").split("\n\n")
    usage = f"{PROGRAM} {command.name} "
    flags = "\n".join(["Flags:", *map(_entry, fields_of(command.options).values())])
    shown = [f"  {usage}{text.strip()}" for text in examples.splitlines()]
    parts = [f"Usage: {usage}[--flag=value ...]", *description, flags]
    return "\n\n".join([*parts, "\n".join(["Examples:", *shown])]) + "\n"


def _entry(option: Declared) -> str:
    """Name of a flag, and its wrapped help with the default."""
    is_switch, default = option.kind is bool, option.default
    text = option.help.replace("{words}", ", ".join(option.words))
    if option.words and not (option.is_list or option.file):
        text += f" One of {', '.join(option.words)}."
    if default not in (None, ()):
        text += f" (default: '{typed(default, option.name)}')"
    wrapped = textwrap.fill(text, WIDTH - len(INDENT), break_on_hyphens=False)
    wrapped = textwrap.indent(wrapped, INDENT)
    return f"  --{'[no]' * is_switch}{option.name}\n{wrapped}"


def main(arguments: Sequence[str]) -> None:
    """Writes a file with the help of each command."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    FOLDER.mkdir(exist_ok=True)
    for command in COMMANDS.values():
        write_bytes(FOLDER / f"{command.name}.txt", command_help(command).encode())


if __name__ == "__main__":
    app.run(main)

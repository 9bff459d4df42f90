"""Help texts, from the registry, the modules' docstrings and the flags."""

import inspect
import textwrap
from collections.abc import Iterable, Mapping

from absl import flags

from bounds.cli.shared.examples import EXAMPLES

WIDTH = 79


def overview(program: str, commands: Mapping[str, str]) -> str:
    """Help of the program: its commands, one line each."""
    lines = [f"Usage: {program} COMMAND [--flag=value ...]", "", "Commands:"]
    lines += [f"  {name:<12}{summary}" for name, summary in commands.items()]
    lines += [
        "",
        f"{program} COMMAND --help lists the flags of a command, {program} --version "
        "the version.",
    ]
    return "\n".join(lines)


def command_usage(
    program: str,
    name: str,
    summary: str,
    module: object,
    groups: Mapping[str, Iterable[flags.Flag]],
) -> str:
    """Help of a command: summary, module docstring, flags with defaults, examples."""
    _, _, description = (inspect.getdoc(module) or "").partition("\n\n")
    parts = [f"Usage: {program} {name} [--flag=value ...]", summary]
    if description:
        parts.append(description)
    for heading, group in groups.items():
        parts.append("\n".join([f"{heading}:", *map(_entry, group)]))
    shown = [f"  {program} {name} {arguments}" for arguments in EXAMPLES[name]]
    parts.append("\n".join(["Examples:", *shown]))
    return "\n\n".join(parts)


def _entry(flag: flags.Flag) -> str:
    """Lines on one flag."""
    name = f"  --[no]{flag.name}" if flag.boolean else f"  --{flag.name}"
    default = (
        f" (default: {flag.default_as_str})" if flag.default not in (None, []) else ""
    )
    # absl appends a note to flags that may be repeated.
    help_text = (flag.help or "").partition(";\n    repeat this option")[0]
    if isinstance(flag.parser, flags.EnumParser):
        # absl puts the choices before the text, as one word.
        choices, _, rest = help_text.partition(">: ")
        help_text = f"{rest} One of {', '.join(flag.parser.enum_values)}."
        assert choices.startswith("<"), flag.name
    text = textwrap.fill(
        f"{help_text}{default}",
        WIDTH,
        initial_indent=" " * 6,
        subsequent_indent=" " * 6,
        break_on_hyphens=False,
    )
    return f"{name}\n{text}"

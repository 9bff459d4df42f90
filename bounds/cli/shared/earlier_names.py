"""What flags were once called, which is read still: typed, in files, and in records."""

from collections.abc import Collection, Sequence

EARLIER_NAMES = {"inputs": "language", "count": "num_inputs"}


def current_name(name: str, known: Collection[str]) -> str:
    """Returns the name that a flag has now.

    Args:
        name: As it was typed or recorded.
        known: The names of a command's flags; what is one of them stays.
    """
    now = EARLIER_NAMES.get(name, name)
    return now if now in known and name not in known else name


def renamed(arguments: Sequence[str], known: Collection[str]) -> list[str]:
    """Returns arguments with flags of earlier names under those that they have.

    Args:
        arguments: What is typed after a command's name.
        known: The names of the command's flags.
    """
    written = []
    for argument in arguments:
        dashes = "-" * (len(argument) - len(argument.lstrip("-")))
        name, equals, value = argument.removeprefix(dashes).partition("=")
        now = current_name(name, known) if dashes else name
        written.append(f"{dashes}{now}{equals}{value}")
    return written

"""The entry point: finds the command, reads its flags, reports what is wrong with them.

An input error of any kind is one line on standard error and exit code 1. Anything
else that is raised is a bug and keeps its traceback.
"""

import contextlib
import dataclasses
import difflib
import importlib
import importlib.resources
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bounds.cli.signals import PROGRAM, RUN, number_of
from bounds.version import __version__
from jax_models.errors import InputError, InputWarning


def overview() -> str:
    """Help of the program: usage, and each command with its summary."""
    lines = [f"Usage: {PROGRAM} COMMAND [--flag=value ...]", "", "Commands:"]
    # The line below the usage.
    lines += [f"  {x.name:<12}{x.page.splitlines()[2]}" for x in COMMANDS.values()]
    lines += [
        "",
        f"{PROGRAM} COMMAND --help lists the flags of a command, {PROGRAM} --version "
        "the version.",
    ]
    return "\n".join(lines)


if TYPE_CHECKING:
    from bounds.cli.shared.options import Group

LONGEST_LINE = 1000  # characters of a message, which may repeat what was typed
HELP = ("--help", "-help", "-h")
# Flags that absl has of its own, and why no command has them.
NOT_HERE = {
    # absl reads whatever stands there, a pipe without end among it.
    "flagfile": "flags are read from no file; give them in place of --flagfile",
    "undefok": "--undefok would hide flags that a command does not have; leave it out",
}


@dataclasses.dataclass(frozen=True)
class Command:
    """Command of the program; its module is imported at first use."""

    name: str

    @property
    def page(self) -> str:
        """Text of its --help."""
        # As `benchmarks.docs_check.help_pages` made it: flags name words of modules
        # that need JAX.
        pages = importlib.resources.files("bounds.cli") / "help"
        return (pages / f"{self.name}.txt").read_text(encoding="utf-8")

    def load(self) -> Any:
        """Import the command's module."""
        # `import` is no name of a module
        name = "import_folder" if self.name == "import" else self.name
        return importlib.import_module(f"bounds.cli.{name}")

    @property
    def options(self) -> "type[Group]":
        """Class of the command's options."""
        return getattr(self.load(), f"{self.name.capitalize()}Options")

    def plan(self, options: Any) -> Any:
        """Work to run, or None if nothing is left; sets up JAX for most commands."""
        from bounds.cli.shared.groups import OneInput, Platform
        from bounds.cli.shared.platforms import prepare_jax

        if isinstance(options, Platform) and not isinstance(options, OneInput):
            prepare_jax(options)
        return self.load().plan(options)

    def measure(self, options: Any, store: Any) -> list[dict[str, Any]]:
        """Returns a run's results as rows for `batch`; prints and writes nothing."""
        from bounds.cli.shared.runner import measure_work

        return measure_work(self.plan(options), store)

    def read(self, arguments: Sequence[str]) -> "Group":
        """Returns the options that arguments give; refuses those that do not apply."""
        found = self.parse(arguments)
        found.refuse_unused()
        return found

    def parse(self, arguments: Sequence[str]) -> "Group":
        """Returns the options that arguments give, each checked by itself."""
        from bounds.cli.shared.options import fields_of, read_flags
        from jax_models.arguments import show

        for part in arguments:
            if (name := part.lstrip("-").partition("=")[0]) in NOT_HERE:
                raise InputError(NOT_HERE[name])
            if "\0" in part:
                raise InputError(f"{show(part)} holds a null byte; leave it out")
        known, further = self.options, getattr(self.load(), "further_options", None)
        every = [*fields_of(known).values(), *(further(arguments) if further else ())]
        return known.parse(read_flags(every, arguments, f"{PROGRAM} {self.name}"))


NAMES = (
    *("curve", "influence", "scan", "supremum", "constants", "lipschitz"),
    *("sensitivity", "restrict", "depth", "entropy", "train", "simulate", "compile"),
    *("import", "batch", "model", "sample"),
)
COMMANDS = {name: Command(name) for name in NAMES}


def prepare_streams() -> None:
    """Opens closed standard streams, and makes them escape what they cannot encode."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed, as in `>&-`
            setattr(sys, name, open(os.devnull, "w"))
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str]) -> int:
    """Runs a command; returns exit code 0, 1 after an error, or 128 + a signal's number."""
    RUN.code = None  # an earlier run of the process may have set it
    prepare_streams()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", InputWarning)  # the same line once
            warnings.showwarning = lambda message, *_, **__: print(
                f"warning: {' '.join(str(message).split())}", file=sys.stderr
            )
            _dispatch(list(arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has stopped, as in `| head`; that is not a mistake
        # to report. The descriptor is replaced so that the exit does not flush to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (InputError, OSError, MemoryError, RuntimeError) as error:
        what = ""
        if isinstance(error, MemoryError):
            what = "this takes more memory than there is: "
        elif isinstance(error, RuntimeError):
            # JAX is loaded where it raises, and only there.
            if "JaxRuntimeError" not in (kind.__name__ for kind in type(error).__mro__):
                raise
            what = "JAX could not compute this: "
        print(f"{PROGRAM}: {what}{one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        return RUN.tell(number_of(error))
    return 0


def one_line(error: BaseException) -> str:
    """Returns an error's message without line breaks."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        error = OSError(f"{error.strerror}: {os.fspath(error.filename)}")
    text = " ".join(str(error).split())
    if len(text) <= LONGEST_LINE:
        return text
    # What was typed stands first, what was expected last.
    return f"{text[: LONGEST_LINE // 2]} ... {text[-LONGEST_LINE // 2 :]}"


def _dispatch(arguments: list[str]) -> None:
    """Prints the version or a help text, or runs the command that is named."""
    match arguments:
        case ["--version" | "-version"]:
            print(f"{PROGRAM} {__version__}")
        case ["--help" | "-help" | "-h" | "help"]:
            print(overview())
        case [name, *rest] if not set(HELP).isdisjoint(rest):
            print(_find(name).page, end="")
        case []:
            raise InputError(f"no command given; choose one of {', '.join(NAMES)}")
        case [name, *rest]:
            _run(_find(name), rest)


def _run(command: Command, arguments: list[str]) -> None:
    command.load()
    # What needs NumPy is loaded where a command is: the version is told without it.
    from bounds.cli.shared.groups import Output
    from bounds.cli.shared.runner import refuse_to_overwrite, run_work

    options = command.read(arguments)
    if isinstance(options, Output):
        refuse_to_overwrite(options)
    RUN.loading = False
    with contextlib.ExitStack() as opened:
        if RUN.alone:  # who calls it from Python reads its lines
            from jax_models.run.progress import tell_of_waiting

            opened.enter_context(tell_of_waiting())
        work = command.plan(options)
        if work is not None:
            run_work(options, work)


def _find(name: str) -> Command:
    if name in COMMANDS:
        return COMMANDS[name]
    close = difflib.get_close_matches(name, COMMANDS, 1)
    hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(NAMES)}"
    raise InputError(f"unknown command {name!r}; {hint}")

"""A mistake on the command line is one clear line and exit code 1."""

import shlex

import jax
import pytest

import jax_models as jm
from benchmarks.docs_check.help_pages import command_help
from bounds.cli import main as program
from bounds.cli.main import COMMANDS, main
from bounds.cli.shared.options import Group, fields_of
from bounds.cli.signals import Terminated
from bounds.version import __version__


def run(capsys, *arguments):
    code = main(arguments)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def assert_one_line(error):
    assert error.startswith("attention-bounds: ")
    assert error.count("\n") == 1
    assert error.endswith("\n")


def test_the_version_is_the_packages(capsys):
    assert run(capsys, "--version") == (0, f"attention-bounds {__version__}\n", "")


@pytest.mark.parametrize("flag", ["--help", "-h", "help"])
def test_the_help_names_every_command(capsys, flag):
    code, out, err = run(capsys, flag)
    assert (code, err) == (0, "")
    for command in COMMANDS.values():
        summary = command.load().__doc__.partition("\n")[0]
        assert f"  {command.name:<12}{summary}\n" in out


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_the_help_of_a_command_names_every_flag_and_runs_nothing(
    capsys, command, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, command.name, "--seed=nonsense", "--help")
    assert (code, err) == (0, "")
    for name, one in fields_of(command.options).items():
        assert f"--{name}\n" in out or f"--[no]{name}\n" in out
        assert one.help
    assert command.load().__doc__.partition("\n")[0] in out
    assert list(tmp_path.iterdir()) == []
    assert "repeat this option" not in out, "the program says so in its own words"
    assert "|" not in out, "choices are told apart by commas, between which lines break"
    examples = out.split("Examples:\n")[1].splitlines()
    assert len(examples) == 2
    for example in examples:
        name, *arguments = shlex.split(example)[1:]
        assert name == command.name
        assert any(one.startswith("--out=") for one in arguments)
        command.read(arguments)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=lambda command: command.name)
def test_the_stored_help_is_what_the_flags_say(capsys, command):
    # `python -m benchmarks.docs_check.help_pages` writes it anew.
    made = command_help(command)
    assert run(capsys, command.name, "--help") == (0, made, "")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no command given"),
        (["curv"], "unknown command 'curv'; did you mean curve?"),
        (["xyz"], "unknown command 'xyz'; choose one of curve, influence"),
        (["--seed=1", "curve"], "unknown command '--seed=1'"),
    ],
)
def test_a_missing_or_unknown_command_is_one_line(capsys, arguments, complaint):
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (1, "")
    assert_one_line(err)
    assert complaint in err


class Raising:
    """A command that raises."""

    def __init__(self, error):
        self.error = error

    def load(self):
        return self

    def read(self, arguments):
        return Group()

    def plan(self, options):
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (jm.InputError("a tensor\nis missing"), 1, "a tensor is missing"),
        (jm.TieError("row 3 is ambiguous"), 1, "row 3 is ambiguous"),
        (PermissionError(13, "Permission denied", "x/y"), 1, "Permission denied: x/y"),
        (
            jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of\nmemory" + 999 * "."
            ),
            1,
            "JAX could not compute this: RESOURCE_EXHAUSTED: Out of memory...",
        ),
        (MemoryError("4 GiB"), 1, "this takes more memory than there is: 4 GiB"),
        (KeyboardInterrupt(), 130, "interrupted; the same command"),
        (Terminated(), 143, "terminated; the same command"),
    ],
)
def test_an_input_error_has_no_traceback(capsys, monkeypatch, error, code, line):
    monkeypatch.setattr(program, "COMMANDS", {"raise": Raising(error)})
    found, _, err = run(capsys, "raise")
    assert found == code
    assert_one_line(err)
    assert line in err


@pytest.mark.parametrize("error", [ValueError("bug"), RuntimeError("bug")])
def test_a_bug_keeps_its_traceback(monkeypatch, error):
    monkeypatch.setattr(program, "COMMANDS", {"raise": Raising(error)})
    with pytest.raises(type(error), match="bug"):
        main(["raise"])

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
    assert all(f"  {command.name} " in out for command in COMMANDS.values())


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
    assert command.summary in out
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


MISSPELT = "--seeed=1", "Unknown command line flag 'seeed'. Did you mean: seed"


@pytest.mark.parametrize(
    ("command", "flag", "complaint"),
    [
        *((command.name, *MISSPELT) for command in COMMANDS.values()),
        ("curve", "--seed=one", "--seed=one"),
        ("curve", "--seed=-1", "--seed=-1"),
        ("curve", "--seed", "seed"),
        ("curve", "extra", "unexpected argument 'extra'"),
        ("sample", "--count=3", "Unknown command line flag 'count'"),
        ("curve", "--d_ff=1,2", "--d_ff=1,2: expected an integer in the range [1, "),
        ("curve", "--d_ff=-1", "-1 is not an integer in the range [1, 2147483647]"),
        ("curve", f"--d_ff={10**400}", "0 is not an integer in the range [1, "),
        ("curve", "--c=x", "--c=x: expected a number"),
        ("curve", "--c=nan", "--c=nan: nan is not a finite number"),
        (
            "curve",
            "--fresh=maybe",
            "attention-bounds: --fresh=maybe: expected true or false",
        ),
        (
            "curve",
            "--lengths=4:x:2",
            "'x' in '4:x:2' is not a whole number; expected a",
        ),
        ("curve", "--lengths=4:8", "'4:8' is no range of three numbers; expected a"),
        ("curve", "--scale=inf", "--scale=inf: inf is not a finite number"),
        ("train", "--p=inf", "--p=inf: inf is not a finite number"),
        ("scan", "--positions=1,x", "--positions=1,x: 'x' is not an integer in the"),
        ("scan", "--positions=1,", "; expected integers, separated by commas"),
        ("curve", f"--mask={5000 * '['}", " is not one of none, future, past, "),
        ("curve", f"--d_ff={5000 * '1'}", "expected an integer in the range [1, "),
        ("curve", "--out=a\0b", "'--out=a\\x00b' holds a null byte"),
        ("curve", "--out=", "--out=: it is empty; expected the name of a folder"),
        ("curve", "--model=", "it is empty; expected the name of a file or a folder"),
        ("curve", "--compilation_cache=", "it is empty; expected a folder, or off"),
        ("curve", "--nofresh=3", "--nofresh=3 does not take an argument"),
        ("curve", "--flagfile=/dev/null", "give them in place of --flagfile"),
    ],
)
def test_a_bad_flag_is_one_line_that_says_what_was_expected(
    capsys, command, flag, complaint
):
    code, out, err = run(capsys, command, flag)
    assert (code, out) == (1, "")
    assert_one_line(err)
    assert complaint in err
    assert len(err) < 1100
    assert "int()" not in err  # in Python's words


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

    name, summary = "raise", "Raises."

    def __init__(self, error):
        self.error = error

    def load(self):
        return self

    def read(self, arguments):
        return Group()

    def run(self, options):
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

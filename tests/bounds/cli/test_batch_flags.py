"""A sweep is the flags of `batch` and of its command, or one line says what is wrong."""

import json
from pathlib import Path

import pytest

from bounds.batch.specification import Specification
from bounds.cli.batch import BatchOptions
from bounds.cli.main import COMMANDS

SWEEP = ["--command=entropy", "--sweep=lengths=2,4,8", "--sweep=p=0.2,0.7"]
FLAGS = {
    "language": ("dyck2", "--language=dyck2"),
    "lengths": ("2,4", "--lengths=2,4"),
    "diagonal": ("false", "--nodiagonal"),
    "rows": ("2", "--rows=2"),
    "temperature": ("1,inverse_log:2", "--temperature=1,inverse_log:2"),
    "p": ("1e-05", "--p=1e-05"),
}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("entropy", ("language", "lengths", "p")),
        ("scan", ("language", "diagonal", "rows")),
        ("curve", ("lengths", "temperature")),
    ],
)
def test_flags_beside_the_command_are_held_fixed_in_all_cells(tmp_path, command, names):
    typed = [FLAGS[name][1] for name in names]
    apart = [part for flag in typed for part in flag.split("=", 1)]
    given = {name: FLAGS[name][0] for name in names}
    expected = Specification(command, given, {"seed": ("1", "2")})
    fixed = {name: value for name, value in given.items() if name != names[0]}
    text = {"command": command, "fixed": fixed, "sweep": {"seed": [1, 2]}}
    (tmp_path / "a.json").write_text(json.dumps(text))
    for arguments in (
        [*typed, f"--command={command}", "--sweep=seed=1,2"],
        [*apart, "--command", command, "--sweep", "seed=1,2"],
        [f"--spec={tmp_path}/a.json", typed[0]],
    ):
        batch = COMMANDS["batch"]
        options = batch.read(arguments)
        assert isinstance(options, BatchOptions)
        assert options.specification() == expected


def test_a_flag_of_the_file_and_beside_it_is_given_twice(run, tmp_path):
    text = {"command": "entropy", "fixed": {"p": 0.3, "seed": 1}}
    (tmp_path / "a.json").write_text(json.dumps(text))
    for flag in ("p", "seed"):
        refused = run("batch", "--spec=a.json", f"--{flag}=1")
        refused.assert_refused(f"--{flag} is given twice")


def test_a_wrong_value_that_all_cells_hold_is_blamed_on_none(run):
    text = {"command": "curve", "fixed": {"d_ff": "x"}, "sweep": {"seed": [1, 2]}}
    Path("a.json").write_text(json.dumps(text))
    complaint = "--d_ff=x: expected an integer"
    beside = run("batch", "--command=curve", "--sweep=seed=1,2", "--d_ff=x")
    beside.assert_refused(f"attention-bounds: {complaint}")
    refused = run("batch", "--spec=a.json")
    refused.assert_refused(f"attention-bounds: fixed d_ff=x: {complaint}")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "no --command given"),
        (["--command"], "Missing value for flag --command"),
        (["--spec"], "Missing value for flag --spec"),
        (["--command=depth"], "--command"),
        (["--command=entropy", "--spec=a.toml"], "give --spec or --command, not both"),
        (["--command=entropy", "--sweep=widths=1,2"], "--widths is no flag of entropy"),
        (["--command=entropy", "--width=1"], "Unknown command line flag 'width'"),
        (["--command=entropy", "--sweep=p=0.1,high"], "p=high: --p=high: "),
        (["--command=entropy", "--sweep=p=0.1,-inf"], "p=-inf: --p=-inf: -inf is not"),
        (["--command=entropy", "--lengths=4,2"], "lengths must increase"),
        (["--command=entropy", "--p=nan"], "--p=nan: nan is not a finite number"),
        (["--command=entropy", "--sweep=p=0.1,nan"], "p=nan: --p=nan: nan"),
        (["--command=curve", "--sweep=weighting=softmax,soft"], "weighting=soft: "),
        (["--command=curve", "--sweep=temperature=1,warm"], "temperature=warm: "),
        (["--command=curve", "--sweep=out=there"], "--out belongs to the sweep"),
        (["--command=restrict", "--sweep=verify=c.json"], "--verify belongs"),
        (
            ["--command=influence", "--model=none.safetensors"],
            "--model 'none.safetensors'",
        ),
        (["--command=influence", "--sweep=model=a.safetensors,b"], "--model 'a.safet"),
        (["--command=influence", "--preset=first", "--mask=none"], "--mask describes"),
        (["--command=influence", "--tokens=a", "--text=b"], "give --tokens or --text"),
        (
            ["--command=scan", "--recipe=dependency_map", "--sweep=rows=0,1"],
            "rows=0: --recipe=dependency_map sets --rows",
        ),
        (["--spec=none.toml"], "does not exist"),
        ([*SWEEP, "--seed=1", "--sweep=seed=2"], "--seed is both fixed and swept"),
        ([*SWEEP, "--p=0.5"], "--p is both fixed and swept"),
        ([*SWEEP, "--local_workers=2", "--scheduler=a:1"], "not both"),
    ],
)
def test_a_bad_sweep_is_one_line_before_anything_runs(
    run, tmp_path, arguments, complaint
):
    run("batch", *arguments).assert_refused(complaint)
    assert not list(tmp_path.iterdir())

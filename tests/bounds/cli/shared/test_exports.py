"""Exports are written over by their own configuration alone, or when that is asked for."""

import json

import pytest

from bounds.cli.main import COMMANDS, main
from bounds.cli.shared.exports import IMMATERIAL
from bounds.cli.shared.record import Output

TINY = ("--d_model=4", "--d_ff=4", "--num_heads=1")
CURVE = ("curve", "--lengths=4", "--num_inputs=1", "--weighting=average_hard", *TINY)


@pytest.fixture
def run(tmp_path, capsys):
    """Runs a command in a folder; returns its exit code, its errors and what stands there."""

    def run_command(*arguments):
        code = main([*arguments, f"--out={tmp_path / 'out'}"])
        files = {
            file.name: file.read_bytes()
            for file in (tmp_path / "out").iterdir()
            if file.suffix in (".csv", ".json", ".png", ".safetensors", ".npy")
        }
        return code, capsys.readouterr().err, files

    return run_command


def test_every_command_has_the_flag_and_it_is_off():
    for command in COMMANDS:
        assert command.load().define_flags()["overwrite"].value is False


def test_what_changes_nothing_is_a_flag_of_some_command():
    known = {name for command in COMMANDS for name in command.load().define_flags()}
    assert IMMATERIAL <= known


def test_another_configuration_leaves_every_file_as_it_is_unless_asked(run):
    _, _, before = run(*CURVE)
    assert {"curve.csv", "curve.json", "curve.png"} <= before.keys()
    code, error, after = run(*CURVE, "--seed=1", "--num_inputs=2")
    assert (code, after) == (1, before)
    assert "curve.json is of another configuration, --num_inputs=1 --seed=0" in error
    assert "this one has --num_inputs=2 --seed=1; name another --out" in error
    assert error.count("\n") == 1
    code, _, after = run(*CURVE, "--seed=1", "--num_inputs=2", "--overwrite")
    assert code == 0
    assert json.loads(after["curve.json"])["flags"]["seed"] == 1
    assert after["curve.csv"] != before["curve.csv"]
    code, _, after = run(*CURVE, "--seed=2", "--figure_format=svg", "--overwrite")
    assert "curve.png" not in after, "the figure of another configuration"
    # What was asked for once holds for what then stands there.
    assert run(*CURVE, "--seed=2", "--figure_format=svg")[0] == 0


@pytest.mark.parametrize("flag", ["", "--fresh", "--figure_format=svg"])
def test_the_same_configuration_needs_no_flag(run, flag):
    assert run(*CURVE)[0] == 0
    assert run(*CURVE, *filter(None, [flag]))[0] == 0


def test_another_command_may_write_beside_but_not_over(run):
    assert run("model", *TINY)[0] == 0
    assert run("sample")[0] == 0
    _, _, before = run(*CURVE)
    code, error, after = run("compile", "--formula=Q_a", "--alphabet=ab")
    assert (code, after) == (1, before)
    assert "model.json is the record of model, which wrote the same files" in error


def test_a_file_of_the_users_is_left_alone(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "curve.json").write_text("[1, 2]")
    code, error, after = run(*CURVE)
    assert (code, after) == (1, {"curve.json": b"[1, 2]"})
    assert "curve.json is no record of curve" in error


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (CURVE, "curve.csv"),
        (CURVE, "curve.png"),
        (("model", *TINY), "model.safetensors"),
        (("sample",), "tokens.npy"),
        (("restrict", "--length=2"), "restriction.png"),
    ],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_a_file_without_a_record_beside_it_is_the_users(run, tmp_path, command, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    code, error, after = run(*command)
    assert (code, after) == (1, {name: b"mine"})
    assert f"{name} is not of {command[0]}, which left no " in error
    assert error.count("\n") == 1
    if name == "tokens.npy":
        code, _, after = run(*command, "--overwrite")
        assert code == 0
        assert after[name] != b"mine"


def test_a_record_of_earlier_names_is_read_by_the_names_of_today(run, tmp_path):
    assert run("sample", "--num_inputs=2")[0] == 0
    path = tmp_path / "out" / "sample.json"
    path.write_text(path.read_text().replace('"num_inputs"', '"count"'))
    code, error, _ = run("sample", "--num_inputs=3")
    assert code == 1
    assert "--num_inputs=2 where this one has --num_inputs=3" in error
    assert run("sample", "--num_inputs=2")[0] == 0


@pytest.mark.parametrize("name", ["record", "draw"])
def test_a_run_killed_between_its_exports_is_told_from_another(run, monkeypatch, name):
    def killed(self, *_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Output, name, killed)
        code, _, after = run(*CURVE)
    assert code == 130
    # The record is written first: what stands there is told by it, or nothing does.
    assert ("curve.csv" in after) <= ("curve.json" in after)
    assert run(*CURVE, "--seed=1")[0] == ("curve.json" in after)
    if "curve.json" in after:
        assert run(*CURVE)[0] == 0


def test_one_that_wrote_meanwhile_is_not_written_over(run, tmp_path, monkeypatch):
    plain = Output.record

    def late(self):
        record = {"flags": {"seed": 7}}
        (tmp_path / "out" / "curve.json").write_text(json.dumps(record))
        return plain(self)

    monkeypatch.setattr(Output, "record", late)
    code, error, after = run(*CURVE)
    assert (code, list(after)) == (1, ["curve.json"])
    assert "--seed=7 where this one has --seed=0" in error


def test_a_dry_run_writes_nothing_and_is_not_refused(run):
    influence = ("influence", "--length=4", *TINY)
    _, _, before = run(*influence)
    code, _, after = run(*influence, "--seed=1", "--dry_run")
    assert (code, after) == (0, before)


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--out=", "the name of a folder"),
        ("--model=", "the name of a file or a folder"),
    ],
)
def test_a_name_that_is_empty_is_refused(capsys, flag, expected):
    assert main(["curve", flag]) == 1
    error = capsys.readouterr().err
    assert f"{flag}: it is empty; expected {expected}" in error
    assert error.count("\n") == 1

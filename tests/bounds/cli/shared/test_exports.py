"""Exports are written over by their own configuration alone, or when that is asked for.

Each file is whole, and their record identifies the run that all are of, whatever stops it.
"""

import errno
import itertools
import json
import os
import shutil

import pytest

from bounds.cli.main import COMMANDS, main
from bounds.cli.shared import runner
from bounds.cli.shared.options import fields_of
from bounds.cli.shared.runner import record_head
from tests.jax_models.format.pretrained.folders import FIXTURES

pytestmark = pytest.mark.usefixtures("no_figures")

TINY = ("--d_model=4", "--d_ff=4", "--num_heads=1")
# Commands that write files without a store between, and what makes another of them.
WRITERS = {
    "sample": ((), "--seed=1"),
    "model": (TINY, "--seed=1"),
    "compile": (("--formula=Q_a", "--alphabet=ab", "--self_test=0"), "--alphabet=abc"),
    "import": ((f"--folder={FIXTURES / 'bert'}",), "--dtype=float64"),
}
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
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
    for command in COMMANDS.values():
        assert fields_of(command.options)["overwrite"].default is False


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


@pytest.mark.parametrize(
    ("name", "recorded", "shown"),
    [
        ("num_layers", {"a": 1}, "--num_layers={'a': 1} where this one has --num_"),
        ("num_layers", None, "no --num_layers where"),
        ("lengths", [4, None, [{}]], "--lengths='4,None,[{}]' where this one has --le"),
        ("language", "", "--language='' where"),
        ("language", "a\x1b[31m\n", r"--language='a\x1b[31m\n' where"),
        ("num_layers", False, "--nonum_layers where"),
    ],
)
def test_any_value_of_a_recorded_flag_is_shown(run, tmp_path, name, recorded, shown):
    run(*CURVE)
    path = tmp_path / "out/curve.json"
    record = json.loads(path.read_text())
    assert name in record["flags"]
    record["flags"][name] = recorded
    path.write_text(json.dumps(record))
    code, error, _ = run(*CURVE)
    assert (code, error.count("\n")) == (1, 1)
    assert f"curve.json is of another configuration, {shown}" in error


@pytest.mark.parametrize("flag", ["", "--fresh", "--figure_format=svg"])
def test_the_same_configuration_needs_no_flag(run, flag):
    assert run(*CURVE)[0] == 0
    assert run(*CURVE, *filter(None, [flag]))[0] == 0


def test_another_command_may_write_beside_but_not_over(run):
    assert run("model", *TINY)[0] == 0
    assert run(*CURVE)[0] == 0
    code, _, before = run("sample")  # which keeps no results, beside a store
    assert code == 0
    code, error, after = run("compile", "--formula=Q_a", "--alphabet=ab")
    assert (code, after) == (1, before)
    assert "model.json is the record of model, which wrote the same files" in error


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


@pytest.mark.parametrize("name", WRITERS)
def test_of_two_that_write_at_once_one_is_refused_and_the_other_is_whole(
    run, monkeypatch, name
):
    (typed, other), inner = WRITERS[name], []

    def late(options):
        record = record_head(options)
        monkeypatch.setattr(runner, "record_head", record_head)
        inner.append(run(name, *typed, other))
        return record

    monkeypatch.setattr(runner, "record_head", late)
    code, error, after = run(name, *typed)
    codes = [code, inner[0][0]]
    assert sorted(codes) == [0, 1]
    assert " another --out" in error + inner[0][1]
    winner = (name, *typed, *([other] if codes[0] else []))
    assert f"{name}.json" in after
    # What stands there is the winner's to the byte, but for the moment of the record.
    assert run(*winner)[0] == 0
    again = run(*winner)[2]
    assert {x for x in after if after[x] != again.get(x)} <= {f"{name}.json"}


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def plant(patch, fault, position):
    """Raise a fault at one call, of all that change a folder; returns the calls' names."""
    called = []

    def planted(step, plain):
        def call(*given, **named):
            called.append(step)
            if len(called) == position:
                raise fault
            return plain(*given, **named)

        return call

    for step in ("mkdir", "fsync", "replace", "rmdir"):
        patch.setattr(os, step, planted(step, getattr(os, step)))
    return called


@pytest.mark.parametrize("fault", [FULL, KeyboardInterrupt()], ids=["full", "killed"])
@pytest.mark.parametrize("name", ["sample", "model"])
def test_a_fault_anywhere_leaves_the_old_files_or_the_record_of_the_new(
    run, tmp_path, monkeypatch, name, fault
):
    (typed, other), out = WRITERS[name], tmp_path / "out"
    assert run(name, *typed)[0] == 0
    shutil.copytree(out, tmp_path / "kept")
    before, outcomes, called = files_of(out), [], []
    for position in itertools.count(1):
        shutil.rmtree(out)
        shutil.copytree(tmp_path / "kept", out)
        with monkeypatch.context() as patch:
            called = plant(patch, fault, position)
            code, error, _ = run(name, *typed, other, "--overwrite")
        begun = files_of(out)[f"{name}.json"] != before[f"{name}.json"]
        assert error.count("\n") == (code != 0)
        if not begun:
            assert code
            assert files_of(out) == before
            assert not [path for path in out.iterdir() if path.is_dir()]
        # The run that the record is of goes on, and the other is refused.
        codes = run(name, *typed)[0], run(name, *typed, other)[0]
        assert codes == ((1, 0) if begun else (0, 1))
        same = {x for x, content in files_of(out).items() if content == before[x]}
        assert not begun or same == {".exports.lock"}
        outcomes.append((code == 0, begun))
        if len(called) < position:
            break
    assert called.count("replace") == 4  # each of two files is written, then moved
    assert set(outcomes) == {(False, False), (False, True), (True, True)}


def test_a_folder_in_the_way_leaves_every_file_as_it_is(run, tmp_path):
    _, _, before = run(*CURVE)
    (tmp_path / "out" / "curve.svg").mkdir()
    code, error, after = run(
        *CURVE, "--seed=1", "--overwrite", "--figure_format=png,svg"
    )
    assert (code, after) == (1, before)
    assert f"Is a directory: {tmp_path / 'out' / 'curve.svg'}" in error


def test_the_record_of_a_model_that_is_replaced_goes_with_it(run):
    compiled = ("compile", *WRITERS["compile"][0])
    assert run("model", *TINY)[0] == 0
    _, _, after = run(*compiled, "--overwrite")
    assert after.keys() == {"compile.json", "model.safetensors"}
    assert run(*compiled)[0] == 0


def test_a_dry_run_writes_nothing_and_is_not_refused(run):
    influence = ("influence", "--length=4", *TINY)
    _, _, before = run(*influence)
    code, _, after = run(*influence, "--seed=1", "--dry_run")
    assert (code, after) == (0, before)

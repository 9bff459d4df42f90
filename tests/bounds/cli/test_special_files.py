"""Devices, pipes and files without end in the place of files: one line, and no waiting."""

import os

import pytest

from bounds.cli.main import COMMANDS
from bounds.cli.shared.runner import refuse_to_overwrite
from jax_models import arguments

SMALL = "--d_model=4 --d_ff=4 --length=4"
TRAIN = (
    "train --language=parity --length=4 --steps=1 --batch_size=2 --d_model=4 --d_ff=4"
)


@pytest.fixture(params=["pipe", "device"])
def put(request, tmp_path):
    """Put a pipe or a link to /dev/zero in the place of a file; returns its kind."""

    def place(name):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if request.param == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
        return request.param

    return place


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("folder/config.json", "influence --model=folder --length=4"),
        ("folder/config.json", "import --folder=folder"),
        ("model.safetensors", "influence --model=model.safetensors --length=4"),
        ("model.safetensors", "entropy --model=model.safetensors --lengths=4"),
        ("sweep.toml", "batch --spec=sweep.toml"),
        ("sweep.json", "batch --spec=sweep.json"),
        ("tokens.txt", f"influence --tokens=tokens.txt {SMALL}"),
        ("tokens.npy", f"influence --tokens=tokens.npy {SMALL}"),
        ("text.txt", f"influence --text=text.txt {SMALL}"),
        ("old.json", "restrict --verify=old.json"),
        ("results/train/checkpoint.safetensors", TRAIN),
    ],
)
def test_what_is_no_regular_file_is_called_what_it_is(run, put, name, command):
    kind = put(name)
    run(*command.split()).assert_refused(f"is a {kind}")


def test_an_old_record_that_is_no_regular_file_is_none(put, tmp_path):
    put("results/influence/influence.json")
    command = COMMANDS["influence"]
    options = command.read([f"--out={tmp_path / 'results/influence'}"])
    with pytest.raises(ValueError, match="is no record of influence"):
        refuse_to_overwrite(options)


@pytest.mark.parametrize("end", ["toml", "json"])
def test_a_specification_is_of_a_megabyte_at_most(run, tmp_path, end):
    (tmp_path / f"big.{end}").write_bytes(b" " * (arguments.SPEC_BYTES + 1))
    run("batch", f"--spec=big.{end}").assert_refused("has more than 1048576 bytes")


@pytest.mark.parametrize(
    "text",
    [
        ".".join(["a"] * 20_000) + " = 1",
        "[" + " . ".join(["a"] * 20_000) + "]",
        "x = {" + ".".join(['"a b"'] * 100) + " = 1}",
        'x = {b = "\\"", ' + "a." * 17 + 'a = 1, c = "x"}',
        "'a b'" + ".'a.b'" * 16 + " = 1",
    ],
)
def test_keys_in_keys_are_refused_before_they_take_memory(run, tmp_path, text):
    (tmp_path / "sweep.toml").write_text(text)
    run("batch", "--spec=sweep.toml").assert_refused("a key of more than 16 parts")


def test_values_with_dots_are_no_keys(run, tmp_path):
    many = ", ".join(f"{k / 10}" for k in range(1, 40))
    (tmp_path / "sweep.toml").write_text(
        'command = "curve"\n'
        f'fixed.out-of-place = "{".".join("a" * 40)}"\nsweep.scale = [{many}]'
    )
    run("batch", "--spec=sweep.toml", "--dry_run").assert_refused("out-of-place")

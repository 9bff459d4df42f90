"""Odd files, folders and streams around a command: one line that names them, no waiting."""

import io
import json
import os
import struct
import sys
from pathlib import Path

import pytest
import safetensors.numpy

import jax_models as jm
from bounds.cli.main import COMMANDS, main
from bounds.cli.shared.runner import refuse_to_overwrite

SMALL = ("--d_model=4", "--d_ff=4", "--num_heads=1")


def link_to(target):
    """A function that puts a link to the target, or to itself, at a path."""
    return lambda path: path.symlink_to(target or path)


# What is put in the place of a file, by what messages call it.
ODD = {
    "a pipe": os.mkfifo,
    "a device": link_to("/dev/zero"),
    "a folder": Path.mkdir,
    "a link that leads back to itself": link_to(None),
}


def place(name, kind):
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    ODD[kind](path)


PLACES = [
    ("folder/config.json", "influence --model=folder --length=4"),
    ("folder/config.json", "import --folder=folder"),
    ("model.safetensors", "influence --model=model.safetensors --length=4"),
    ("model.safetensors", "entropy --model=model.safetensors --lengths=4"),
    ("sweep.toml", "batch --spec=sweep.toml"),
    ("sweep.json", "batch --spec=sweep.json"),
    ("tokens.txt", "influence --tokens=tokens.txt"),
    ("tokens.npy", "influence --tokens=tokens.npy"),
    ("text.txt", "influence --text=text.txt"),
    ("old.json", "restrict --verify=old.json"),
    ("results/train/checkpoint.safetensors", "train --steps=1 --length=4"),
]


@pytest.mark.parametrize(
    ("name", "command", "kind"),
    [
        (*one, kind)
        for one in PLACES
        for kind in ODD
        # What leads back to itself in a folder is not there.
        if "link" not in kind or "/" not in one[0]
    ],
)
def test_what_is_no_file_is_called_what_it_is(run, name, command, kind):
    place(name, kind)
    ended = run(*command.split())
    ended.assert_refused(kind.removeprefix("a "))
    assert name in ended.err


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
def test_an_old_record_that_is_no_file_is_none(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place("results/influence/influence.json", kind)
    with pytest.raises(ValueError, match="is no record of influence"):
        refuse_to_overwrite(COMMANDS["influence"].read([]))


def test_a_config_of_many_brackets_is_one_line(run, tmp_path, make_model):
    content = {"config": 100_000 * "["}
    tensors = {"embedding": jm.build_preset("first").embedding.__array__()}
    safetensors.numpy.save_file(tensors, tmp_path / "deep.safetensors", content)
    run("influence", "--model=deep.safetensors").assert_refused("is not JSON")


def numpy_file(header):
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(header)) + header


@pytest.mark.parametrize(
    "content",
    [
        numpy_file(
            b"{'descr': '<i8', 'fortran_order': False, 'shape': (%d,)}" % 10**20
        ),
        numpy_file(b"{'descr': "),
        b"PK\3\4 an archive",
        b"",
    ],
    ids=["a shape of 10^20", "half a header", "an archive", "nothing"],
)
def test_what_numpy_cannot_read_is_no_array_file(run, tmp_path, content):
    (tmp_path / "odd.npy").write_bytes(content)
    ended = run("influence", "--tokens=odd.npy", *SMALL)
    ended.assert_refused("odd.npy: not a NumPy array file")


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_folder_in_the_way_is_named_and_no_part_of_a_file(run, tmp_path, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    ended = run("model", "--out=out", *SMALL)
    ended.assert_refused(f"out/{name}")
    assert ".part" not in ended.err


@pytest.mark.parametrize("end", ["", ".lock"])
@pytest.mark.parametrize(
    ("put", "complaint"),
    [
        (Path.mkdir, ": a folder, where a file was"),
        *(
            (link_to(f"/dev/{x}"), ": a device, pipe or socket")
            for x in ("full", "null", "zero")
        ),
        (link_to(None), ""),
    ],
    ids=["folder", "full", "null", "zero", "itself"],
)
def test_what_is_no_file_in_place_of_a_store_is_called_so(run, put, complaint, end):
    Path("out").mkdir()
    put(Path(f"out/results.sqlite{end}"))
    ended = run("entropy", "--lengths=4", "--out=out")
    ended.assert_refused(f"out/results.sqlite{end}{complaint}")
    assert "make room" not in ended.err


@pytest.mark.parametrize("out", ["file", "file/below"])
@pytest.mark.parametrize("command", ["entropy --lengths=4", "model", "sample"])
def test_an_out_that_is_no_folder_is_named(run, tmp_path, command, out):
    (tmp_path / "file").write_text("")
    ended = run(*command.split(), f"--out={out}")
    ended.assert_refused(f"--out={out}: ")
    assert "file is no folder; expected one" in ended.err
    assert ended.out == ""


def test_a_folder_that_cannot_be_written_to_is_called_one(run, tmp_path, monkeypatch):
    (tmp_path / "shut").mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: "shut" not in str(path))
    for out in ("shut", "shut/below"):
        ended = run("entropy", "--lengths=4", f"--out={out}")
        ended.assert_refused("shut is a folder that cannot be written to")


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("größe", "ascii"),
        pytest.param("größe", "utf-8", marks=pytest.mark.slow),
        (os.fsdecode(b"\xff\xfe"), "utf-8"),
        pytest.param(os.fsdecode(b"\xff\xfe"), "ascii", marks=pytest.mark.slow),
    ],
)
def test_results_are_not_lost_for_a_name_that_cannot_be_printed(
    tmp_path, monkeypatch, name, encoding
):
    printed = io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict")
    monkeypatch.setattr(sys, "stdout", printed)
    out = tmp_path / name
    quick = ["--weighting=softmax", "--method=exhaustive", "--bounds=none"]
    for command in (["sample"], ["curve", "--lengths=4", *SMALL, *quick]):
        assert main([*command, f"--out={out}"]) == 0
    record = json.loads((out / "sample.json").read_bytes())
    assert record["flags"]["out"] == str(out)
    printed.seek(0)
    assert "tokens.npy" in printed.read()


def test_a_command_works_with_closed_streams(tmp_path, monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    assert main(["sample", f"--out={tmp_path}"]) == 0
    assert main(["sample", "--num_inputs=0", f"--out={tmp_path}"]) == 1
    assert (tmp_path / "tokens.npy").exists()
    sys.stdout.close()
    sys.stderr.close()

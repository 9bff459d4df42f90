"""What stands around a command: odd files, names no text has, streams that are shut."""

import io
import json
import os
import struct
import sys

import pytest
import safetensors.numpy

import jax_models as jm
from bounds.cli.main import main

SMALL = ("--d_model=4", "--d_ff=4", "--num_heads=1")


def fold(path):
    path.mkdir()


def loop(path):
    path.symlink_to(path)


ODD = {"folder": fold, "link that leads back to itself": loop}


@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize(
    "command",
    [
        "influence --model",
        "influence --tokens",
        "influence --text",
        "restrict --verify",
    ],
)
def test_what_is_no_file_is_called_what_it_is(run, tmp_path, kind, command):
    ODD[kind](tmp_path / "odd")
    ended = run(*f"{command}=odd".split())
    ended.assert_refused(kind)
    assert "'odd'" in ended.err


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


def test_a_store_that_links_to_itself_is_one_line(run, tmp_path):
    (tmp_path / "out").mkdir()
    loop(tmp_path / "out" / "results.sqlite")
    ended = run("curve", "--lengths=4", "--out=out", *SMALL)
    ended.assert_refused("out/results.sqlite")


@pytest.mark.parametrize("end", ["", ".lock"])
def test_a_folder_in_place_of_a_store_is_called_one(run, tmp_path, end):
    (tmp_path / "out" / f"results.sqlite{end}").mkdir(parents=True)
    ended = run("entropy", "--lengths=4", "--out=out")
    ended.assert_refused(f"out/results.sqlite{end}: a folder, where a file was")


@pytest.mark.parametrize("end", ["", ".lock"])
@pytest.mark.parametrize("device", ["full", "null", "zero"])
def test_a_store_that_links_to_a_device_is_called_one(run, tmp_path, device, end):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / f"results.sqlite{end}").symlink_to(f"/dev/{device}")
    ended = run("entropy", "--lengths=4", "--out=out")
    ended.assert_refused(f"out/results.sqlite{end}: a device, pipe or socket")
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

"""State dicts in torch's format are read without torch; nothing else is, or is called."""

import contextlib
import copyreg
import pathlib
import pickle
import struct
import sys
import zipfile

import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_models as jm
from jax_models.format.pretrained.torch_file import read_torch
from tests.jax_models.format.pretrained import folders
from tests.jax_models.format.pretrained.folders import assert_says
from tests.jax_models.format.pretrained.torch_layout import (
    DICTIONARY,
    archive,
    group,
    named,
    number,
    state,
    storage,
    tensor,
    text,
)

FILES = pathlib.Path(__file__).parent / "torch_files"
FOUR = np.arange(4, dtype="<f4").tobytes()
GOOD = storage("FloatStorage", "0", 4)
VICTIM = "victim_of_pickles"


def written(content, place):
    path = place / "pytorch_model.bin"
    path.write_bytes(content)
    return path


def refusal(content, place):
    line = folders.refusal(lambda: read_torch(written(content, place)))
    assert "pytorch_model.bin" in line
    return line


@pytest.mark.parametrize("name", ["state", "plain", "protocol_4"])
def test_what_torch_wrote_is_read(name):
    found = read_torch(FILES / f"{name}.bin")
    expected = load_file(FILES / "state.safetensors")
    assert set(found) == set(expected)
    for key, wanted in expected.items():
        kind = "bfloat16" if key == "bfloat16" else wanted.dtype
        assert (found[key].shape, found[key].dtype) == (wanted.shape, kind)
        np.testing.assert_array_equal(found[key].astype(wanted.dtype), wanted)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("module", "asks for 'torch.nn.modules.linear Linear'"),
        ("older", "of torch's format before version 1.6"),
        ("nested", "holds ['state_dict', 'epoch'] among 2"),
    ],
)
def test_what_torch_wrote_and_is_no_state_is_refused_with_a_way_out(
    name, said, tmp_path
):
    line = refusal((FILES / f"{name}.bin").read_bytes(), tmp_path)
    assert_says(line, said, "torch.save(state, ", "torch.load(file, weights_only=True")


CALL = named(VICTIM, "act")
ENDS = {
    "REDUCE": CALL + b")R",
    "INST": f"(i{VICTIM}\nact\n".encode(),
    "OBJ": b"(" + CALL + b"o",
    "NEWOBJ": CALL + b")\x81",
    "STACK_GLOBAL": text(VICTIM) + text("act") + b"\x93)R",
    "EXT1": b"\x82\x01",
    "PERSID": b"Pact\n",
    "BUILD of a name": named("torch", "FloatStorage") + b"}b",
    "SETITEM of a name": named("collections", "OrderedDict") + text("a") + b"Ns",
    "a call of a number": number(3) + b")R",
    "a dictionary of pairs": named("collections", "OrderedDict") + group(b")") + b"R",
    "a dotted name": named("collections", "OrderedDict.fromkeys") + b")R",
}


class Victim:
    """A module that notices whether it is imported or called."""

    def __init__(self):
        self.touched = []

    def __getattr__(self, name):
        self.touched.append(name)
        return lambda *_: None


@pytest.mark.parametrize("name", ENDS)
def test_no_opcode_calls_anything(name, tmp_path, monkeypatch):
    victim = Victim()
    monkeypatch.setitem(sys.modules, VICTIM, victim)
    copyreg.add_extension(VICTIM, "act", 1)  # of EXT1
    try:
        line = refusal(archive(ENDS[name] + b".", {"0": FOUR}), tmp_path)
    finally:
        copyreg.remove_extension(VICTIM, "act", 1)
    assert_says(line, "nothing in it was executed")
    assert victim.touched == []


def test_the_victim_is_hit_by_python_itself(monkeypatch):
    """The attack is one: what reads pickles with calls does call."""
    victim = Victim()
    monkeypatch.setitem(sys.modules, VICTIM, victim)
    pickle.loads(b"\x80\x02" + ENDS["REDUCE"] + b".")
    assert "act" in victim.touched


def nested(depth):
    return b"\x80\x02" + DICTIONARY + text("a") + b")" + b"\x85" * depth + b"s."


def doubled(times):
    """Pairs of one pair of one pair ...: a few bytes, 2^times objects."""
    pairs = b"".join(b"q%ch%c\x86" % (k, k) for k in range(times))
    return b"\x80\x02" + DICTIONARY + text("a") + b")" + pairs + b"s."


def of_tensor(*view, held=GOOD):
    return state(a=tensor(held, *view))


def of_storage(key, count, kind="FloatStorage"):
    return of_tensor(0, (4,), (1,), held=storage(kind, key, count))


ALL = of_tensor(0, (4,), (1,))
MANY = 2**61
VIEW = tensor(GOOD, 3, (4,), (0,))
UNTYPED = of_storage("0", 4, "UntypedStorage")
# Pickles beside a storage of four numbers, and what is said.
PICKLES = {
    "too few bytes": (of_storage("0", 5), "16 bytes for 5 numbers"),
    "a negative storage": (of_storage("0", -4), "16 bytes for -4 numbers"),
    "no storage": (of_storage("1", 4), "'data/1'"),
    "an unknown type": (UNTYPED, "asks for 'torch UntypedStorage'"),
    "beyond the storage": (of_tensor(1, (4,), (1,)), "of a storage of 4 numbers"),
    "a huge shape": (of_tensor(0, (MANY, MANY), (0, 0)), "storage of 4 numbers"),
    "a negative offset": (of_tensor(-1, (1,), (1,)), "has a tensor of shape"),
    "many axes": (of_tensor(0, (1,) * 9, (1,) * 9), "has a tensor of shape"),
    "axes without strides": (of_tensor(0, (2, 2), (1,)), "not a complete torch"),
    "a view of a view": (of_tensor(0, (4,), (1,), held=VIEW), "has a tensor of shape"),
    "a number as storage": (of_tensor(0, (), (), held=number(3)), "not a comp"),
    "a number among tensors": (state(a=number(3)), "holds ['a'] among 1"),
    "numbers as keys": (b"\x80\x02}" + number(3) + GOOD + b"s.", "puts [3] into State"),
    "one storage": (b"\x80\x02" + GOOD + b".", "holds ndarray, no state dict"),
    "nested without end": (nested(10**6), "nested more than 64 deep"),
    "nested to the limit": (nested(60), "holds ['a'] among 1"),
    "the same in many places": (doubled(60), "has one of over 4194304 objects"),
    "an unknown memo": (b"\x80\x02h\x07.", "not a complete torch file"),
    "a large pickle": (b"\x80\x02" + b"N" * 2**23 + b".", "data.pkl of 83886"),
}


@pytest.mark.parametrize("name", PICKLES)
def test_a_pickle_that_declares_what_is_not_there_is_refused(name, tmp_path):
    held, said = PICKLES[name]
    assert_says(refusal(archive(held, {"0": FOUR}), tmp_path), said)


WHOLE = archive(ALL, {"0": FOUR})


def with_entry(name):
    held = archive(ALL, {"0": FOUR, "1": b""})
    old = b"archive/data/1"
    return held.replace(old, name.encode().ljust(len(old), b"x"))


def with_size(more):
    """The archive whose directory says that the first entry is longer."""
    at = WHOLE.index(b"PK\x01\x02")
    sizes = struct.unpack_from("<II", WHOLE, at + 20)
    longer = struct.pack("<II", *(size + more for size in sizes))
    return WHOLE[: at + 20] + longer + WHOLE[at + 28 :]


def overlapping():
    """Every entry of the directory is the same, largest, bytes."""
    held = bytearray(archive(ALL, {str(k): FOUR for k in range(9)}))
    at = first = held.index(b"PK\x01\x02")
    sizes, start = held[first + 20 : first + 28], held[first + 42 : first + 46]
    while (at := held.find(b"PK\x01\x02", at + 4)) >= 0:
        held[at + 20 : at + 28], held[at + 42 : at + 46] = sizes, start
    return bytes(held)


BOMB = archive(ALL, {"0": bytes(2**24)}, compression=zipfile.ZIP_DEFLATED)
PLAIN, ENCRYPTED = (b"PK\x01\x02\x14\x03\x14\x00" + x for x in (b"\0", b"\1"))
ARCHIVES = {
    "without its beginning": (WHOLE[40:], "ends within its entry"),
    "a bomb": (BOMB, "packed"),
    "longer than the file": (with_size(2**20), "within its entry 'archive/data.pkl'"),
    "entries that overlap": (overlapping(), "has entries that overlap"),
    "an entry above": (with_entry("archive/../../"), "has the entry 'archive/../../'"),
    "an entry elsewhere": (with_entry("/etc/passwd"), "has the entry '/etc/passwd"),
    "an entry twice": (with_entry("archive/data/0"), "has the entry 'archive/data/0'"),
    "all at the root": (archive(b"", {}, name=""), "has the entry '/data.pkl'"),
    "big-endian": (WHOLE.replace(b"little", b"bigbig"), "is of byte order b'bigbig'"),
    "no pickle": (WHOLE.replace(b"data.pkl", b"code.pkl"), "'data.pkl'"),
    "encrypted": (WHOLE.replace(PLAIN, ENCRYPTED), "packed"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_torch_would_not_write_is_refused(name, tmp_path):
    content, said = ARCHIVES[name]
    assert_says(refusal(content, tmp_path), said)


def test_every_cut_of_a_file_is_refused(tmp_path):
    content = (FILES / "state.bin").read_bytes()
    for end in range(0, len(content), 197):
        refusal(content[:end], tmp_path)


def test_a_file_with_a_changed_byte_is_read_or_refused(tmp_path):
    content = (FILES / "state.bin").read_bytes()
    draw = np.random.default_rng(0)
    for at in draw.integers(len(content), size=150):
        held = bytearray(content)
        held[at] = draw.integers(256)
        path = written(bytes(held), tmp_path)
        with contextlib.suppress(jm.InputError):
            for array in read_torch(path).values():
                array.copy()

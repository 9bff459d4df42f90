"""A model is saved whole or not at all, and so is every file that is written."""

import os

import pytest

import jax_models as jm
from bounds.store.output import write_bytes
from tests.architecture import small_model

MODEL = small_model(num_layers=0, d_model=2, d_ff=2, dtype="float64")
WRITERS = {
    "save": lambda path: jm.save(MODEL, path),
    "write_bytes": lambda path: write_bytes(path, b"new"),
}
every_writer = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)


@every_writer
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(
    tmp_path, monkeypatch, step, write
):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"old")

    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space") as refused:
        write(path)
    assert refused.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@every_writer
def test_a_written_file_is_as_readable_as_any_other(tmp_path, write):
    before = os.umask(0o027)
    try:
        write(tmp_path / "ours")
        (tmp_path / "other").write_bytes(b"")
    finally:
        os.umask(before)
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_a_folder_that_is_not_there_is_not_made(tmp_path):
    with pytest.raises(FileNotFoundError, match="none"):
        jm.save(MODEL, tmp_path / "none" / "model.safetensors")

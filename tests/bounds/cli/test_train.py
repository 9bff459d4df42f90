"""`train` writes the model it trained, and goes on to the same bytes after any stop."""

import dataclasses
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest

import jax_models as jm
from bounds.cli import train
from jax_models.languages import get_source
from jax_models.training import Training, run_training
from tests.bounds.cli.outputs import SHAPE, read_csv, read_json

OUT = Path("results/train")
CHECKPOINT = OUT / "checkpoint.safetensors"
QUICK = (
    "--p=0.5 --length=4 --steps=6 --checkpoint_every=2 --batch_size=4 --num_heads=1 "
    "--d_model=4 --d_ff=4 --lengths=3,5 --num_inputs=8"
).split()


def model_bytes(out=OUT):
    return (out / "model.safetensors").read_bytes()


def test_the_model_is_the_one_of_the_python_interface(run):
    assert run("train", *QUICK, "--scale=0.5").code == 0
    weights, batches = jax.random.split(jax.random.key(0))
    shape = {**SHAPE, "vocab_size": 2, "mask": "future", "scale": 0.5}
    readout = jm.Architecture(num_classes=3)
    model = jm.init_transformer(weights, **shape, dtype="float64", architecture=readout)
    model = dataclasses.replace(model, vocabulary=("0", "1"), substitutable=(0, 1))
    training = Training(4, 6, 4, all_positions=True, checkpoint_every=2)
    found = run_training(model, get_source("parity", 0.5), training, batches)
    assert model_bytes() == jm.model_bytes(found.network)
    rows = read_csv("train")
    assert list(rows[0]) == "step loss optimal loss_3 loss_5 stderr_3 stderr_5".split()
    assert [float(row["loss"]) for row in rows[:-1]] == found.losses.tolist()
    assert [row["step"] for row in rows] == list("0123456")
    assert [row["step"] for row in rows if row["loss_3"]] == list("0246")
    record = read_json("train")
    assert record["training"]["all_positions"] is True
    assert [row["n"] for row in record["losses"]] == [3, 5]


def test_a_run_that_is_stopped_ends_with_the_same_bytes(run, monkeypatch):
    run("train", *QUICK, "--out=undisturbed")
    advance = train.Progress.advance

    def stop(self, step, count=1):
        advance(self, step, count)
        if self.done == 4:  # as by Ctrl-C
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(train.Progress, "advance", stop)
        assert run("train", *QUICK).code == 130  # interrupted
    assert CHECKPOINT.exists()
    assert not (OUT / "model.safetensors").exists()
    assert "4 of 6 steps" in run("train", *QUICK).out
    assert model_bytes() == model_bytes(Path("undisturbed"))
    written = [Path(out, "train.csv").read_bytes() for out in (OUT, "undisturbed")]
    assert written[0] == written[1]


def test_a_finished_run_is_recognised(run, monkeypatch):
    run("train", *QUICK)
    before = model_bytes()
    (OUT / "model.safetensors").unlink()

    def never(*arguments, **options):
        raise AssertionError("a step was taken")

    monkeypatch.setattr("jax_models.training.loop._Run.advance", never)
    again = run("train", *QUICK).done()
    assert "6 of 6 steps" in again.out
    assert model_bytes() == before


def test_another_run_in_the_same_folder_is_refused_until_it_is_to_start_over(run):
    run("train", *QUICK)
    other = [*QUICK, "--seed=1"]
    run("train", *other).assert_refused("another run: its seed is 0, here 1")
    assert run("train", *other, "--fresh").code == 0
    run("train", *other, "--out=other")
    assert model_bytes() == model_bytes(Path("other"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flag", "symbols", "free", "classes"),
    [
        ("--reading=query", "01$", 2, 3),
        ("--language=dyck2", "()[]", 4, 5),
        ("--language=dyck2_depth4", "()[]", 4, 5),
    ],
)
def test_a_model_has_the_symbols_of_its_source(run, flag, symbols, free, classes):
    assert run("train", *QUICK, flag).code == 0
    model = jm.load(OUT / "model.safetensors")
    assert model.vocabulary == tuple(symbols)
    assert model.substitutable == tuple(range(free))
    assert isinstance(model.readout, jm.Readout)
    assert model.readout.weight.shape == (classes, 4)


@pytest.mark.slow
def test_a_run_that_is_killed_ends_with_the_same_bytes(tmp_path):
    options = [*QUICK, "--steps=2990", "--checkpoint_every=25", "--num_layers=2"]

    def start(out):
        words = [sys.executable, "-m", "bounds", "train", f"--out={out}", *options]
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(words, **pipes, text=True)

    out, whole = tmp_path / "killed", tmp_path / "undisturbed"
    process, deadline = start(out), time.monotonic() + 300
    while not (out / "checkpoint.safetensors").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline, process.kill()
        time.sleep(0.002)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL, "killed too late"
    assert not (out / "model.safetensors").exists()
    (_, problems), (said, again) = (
        start(x).communicate(timeout=300) for x in (whole, out)
    )
    first = next(line for line in said.splitlines() if " of 2990 steps (" in line)
    assert 0 < int(first.split()[0]) < 2990, (first, problems, again)
    assert model_bytes(out) == model_bytes(whole)

"""A model file is named by the hash of its own bytes, whatever is made of the model."""

import hashlib
import json
from pathlib import Path

import pytest
import safetensors
import safetensors.numpy

import jax_models as jm
from bounds import read_store
from jax_models.constructions import build_preset
from tests.bounds.cli.outputs import read_json

pytestmark = pytest.mark.usefixtures("no_figures")

QUICK = {
    "influence": ["--length=3", "--method=exhaustive"],
    "constants": ["--lengths=4"],
    "lipschitz": ["--lengths=4", "--num_inputs=1", "--restarts=0"],
    "curve": ["--lengths=3", "--num_inputs=1", "--method=exhaustive", "--bounds=none"],
}


def sha256_of(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def recorded(command):
    record = read_json(command)
    return record["curves"][0] if command == "curve" else record


@pytest.fixture
def foreign_file(model_file):
    """A model as another program writes it: the same JSON in other characters."""
    path = model_file(layer_norm="none")
    with safetensors.safe_open(path, framework="np") as file:
        config = json.loads(file.metadata()["config"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    ours = path.read_bytes()
    text = json.dumps(dict(reversed(config.items())), indent=1)
    safetensors.numpy.save_file(tensors, path, metadata={"config": text})
    assert path.read_bytes() != ours == jm.model_bytes(jm.load(path))
    return path


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(name, marks=pytest.mark.slow) if name == "lipschitz" else name
        for name in QUICK
    ],
)
def test_every_record_has_the_hash_of_the_file(run, foreign_file, command):
    arguments = [command, f"--model={foreign_file}", *QUICK[command]]
    changed = ["--dtype=float32", "--temperature=2"]
    for flags, weighting in ((changed, "softmax@2"), ([], "softmax")):
        run(*arguments, *flags).done()
        assert recorded(command)["model_sha256"] == sha256_of(foreign_file)
        assert recorded(command)["weighting"] == weighting
    if command == "constants":
        return  # It keeps no store.
    # What is made of one file in two ways is two results.
    store = read_store(f"results/{command}/results.sqlite")
    assert len(store) == 2
    assert set(store.column("config.model_sha256")) == {sha256_of(foreign_file)}


def test_bounds_of_one_file_under_two_temperatures_are_two(run, foreign_file):
    arguments = ["curve", f"--model={foreign_file}", "--lengths=3", "--num_inputs=1"]
    arguments += ["--method=exhaustive", "--bounds=closed_forms"]
    run(*arguments)
    assert "2 of 2 measurements to compute" in run(*arguments, "--temperature=2").out


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_preset_has_the_hash_of_the_file_it_would_be_saved_as(run, dtype):
    flags = ["--preset=first", f"--dtype={dtype}"]
    assert run("constants", *flags, "--lengths=4").code == 0
    found = recorded("constants")["model_sha256"]
    assert found in run("model", *flags).out
    assert found == recorded("model")["model_sha256"]
    assert found == sha256_of("results/model/model.safetensors")
    if dtype == "float64":
        written = jm.model_bytes(build_preset("first", dtype="float64"))
        assert found == hashlib.sha256(written).hexdigest()

"""`model` writes the file that its flags describe."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_models as jm
from jax_models.constructions import PRESETS, build_preset
from jax_models.model.reweight import with_temperature
from tests.bounds.cli.outputs import SHAPE_FLAGS

OUT = Path("results/model/model.safetensors")


def test_a_random_model_is_the_one_of_the_python_interface(run, make_model):
    flags = ["--seed=3", "--vocab_size=3", "--mask=past", "--score=additive"]
    flags += ["--weighting=average_hard", "--temperature=inverse_log:2", "--scale=0.5"]
    assert run("model", *SHAPE_FLAGS, *flags).code == 0
    model = make_model(
        key=3,
        vocab_size=3,
        mask="past",
        score="additive",
        weighting="average_hard",
        temperature=jm.InverseLogTemperature(2.0),
        scale=0.5,
    )
    assert OUT.read_bytes() == jm.model_bytes(model)


# Flags of constructions, and the parameters that they give.
BUILT = {f"--preset={name}": {} for name in PRESETS} | {
    "--preset=parity --c=2.5": {"c": 2.5},
    "--preset=hard_parity --num_layers=3": {"num_layers": 3},
    "--preset=hard_parity --num_heads=2": {"num_heads": 2},
}


@pytest.mark.parametrize("flags", BUILT)
def test_a_construction_is_written_as_it_is_built(run, flags):
    assert run("model", *flags.split()).code == 0
    name = flags.split()[0].removeprefix("--preset=")
    model = build_preset(name, dtype="float64", **BUILT[flags])
    assert OUT.read_bytes() == jm.model_bytes(model)


def test_a_file_can_be_given_another_temperature_and_type(run, model_file):
    path = model_file()
    flags = ["--temperature=power:1:0.5", "--dtype=float32"]
    assert run("model", f"--model={path}", *flags).code == 0
    found, given = load_file(OUT), load_file(path)
    assert found.keys() == given.keys()
    for name, tensor in found.items():
        assert tensor.dtype == np.float32
        np.testing.assert_array_equal(tensor, given[name].astype(np.float32))
    expected = with_temperature(jm.load(OUT), jm.PowerTemperature(1.0, 0.5))
    assert OUT.read_bytes() == jm.model_bytes(expected)


def test_a_truncated_file_is_one_line_that_names_it(run, model_file):
    path = model_file("short.safetensors")
    path.write_bytes(path.read_bytes()[:-9])
    run("model", f"--model={path}").assert_refused("short.safetensors")

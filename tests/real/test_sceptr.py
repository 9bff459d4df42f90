"""SCEPTR, trained on receptors of T cells: every row is that of its own module in float64."""

import os
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_models as jm
from benchmarks.trained import SCEPTR, sceptr_model
from tests.real.test_checkpoints import PACKAGES, PEER, SCRIPT

pytestmark = pytest.mark.real
FOLDER = PACKAGES / SCEPTR
# Rows were found within 1e-14 in float64, 5e-6 in float32.


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    if not PEER:
        pytest.fail("PEER_PYTHON is not set; give an interpreter with torch")
    out = tmp_path_factory.mktemp("sceptr")
    script = SCRIPT.with_name("peer_sceptr.py")
    command = [PEER, str(script), str(FOLDER), str(out)]
    subprocess.run(command, check=True, env=os.environ, capture_output=True)
    return [load_file(out / f"{name}.safetensors") for name in ("state", "outputs")]


@pytest.mark.parametrize(("dtype", "allowed"), [("float64", 1e-12), ("float32", 1e-4)])
def test_every_row_is_that_of_the_reference(files, dtype, allowed):
    state, outputs = files
    model = sceptr_model(state, outputs["loops"], dtype)
    for name, made in (("rows", jm.apply), ("logits", jm.apply_logits)):
        found = np.asarray(made(model, outputs["tokens"]), np.float64)
        size = np.linalg.norm(outputs[name], axis=-1)
        assert (np.linalg.norm(found - outputs[name], axis=-1) < allowed * size).all()

"""SCEPTR, trained on receptors of T cells: every row is that of its own module in float64.

A receptor is six loops of amino acids (L = 3, d = 64). A row enters as the sum of what its
amino acid, its place in the loop and the loop say, all of one linear map: with the lengths of
the loops given, the first is an embedding and the others are a table of positions.
"""

import os
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

import bounds
import jax_models as jm
from tests.real.test_checkpoints import PACKAGES, PEER, SCRIPT

pytestmark = [pytest.mark.real, pytest.mark.usefixtures("quick_compilation")]
FOLDER = PACKAGES / "sceptr/_model_saves/SCEPTR"
PROJECTION = "_self_attention_stack._initial_projector.weight"
READOUT = "_mlm_token_prediction_projector.projector"
AMINO_ACIDS = range(3, 23)
# Rows were found within 1e-14 in float64, 5e-6 in float32.


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The state and the outputs."""
    if not PEER:
        pytest.fail("PEER_PYTHON is not set; give an interpreter with torch")
    out = tmp_path_factory.mktemp("sceptr")
    script = SCRIPT.with_name("peer_sceptr.py")
    command = [PEER, str(script), str(FOLDER), str(out)]
    subprocess.run(command, check=True, env=os.environ, capture_output=True)
    return [load_file(out / f"{name}.safetensors") for name in ("state", "outputs")]


def read(state, loops, dtype):
    """The model for receptors whose rows stand in these loops, 0 for the first row's."""
    symbols, place, compartments = np.split(
        state[PROJECTION].astype(np.float64), [22, 23], axis=1
    )
    position = np.zeros((len(loops), 64))
    for loop in range(1, 7):
        rows = np.flatnonzero(loops == loop)
        share = (rows - rows[0]) / (len(rows) - 1) if len(rows) > 1 else 1 / 2
        position[rows] = (
            np.multiply.outer(share, place[:, 0]) + compartments[:, loop - 1]
        )
    return jm.from_torch(
        {k: x for k, x in state.items() if "_standard_" in k or READOUT in k},
        heads=8,
        embedding=np.vstack([np.zeros(64), symbols.T]),
        position=position,
        readout=READOUT,
        dtype=dtype,
    )


@pytest.mark.parametrize(("dtype", "allowed"), [("float64", 1e-12), ("float32", 1e-4)])
def test_every_row_is_that_of_the_reference(files, dtype, allowed):
    state, outputs = files
    model = read(state, outputs["loops"], dtype)
    for name, made in (("rows", jm.apply), ("logits", jm.apply_logits)):
        found = np.asarray(made(model, outputs["tokens"]), np.float64)
        size = np.linalg.norm(outputs[name], axis=-1)
        assert (np.linalg.norm(found - outputs[name], axis=-1) < allowed * size).all()


def test_influences_on_the_first_row_are_those_of_rerunning(files):
    """Of all substitutions of amino acids, at every place of the receptor."""
    state, outputs = files
    model, tokens = read(state, outputs["loops"], "float64"), outputs["tokens"]
    found = bounds.compute_influence(
        model, tokens, query=0, symbols=AMINO_ACIDS, method="incremental"
    )
    base = np.asarray(jm.apply(model, tokens))[0]
    for i in (1, 7, 20, 30, 45):
        for symbol in AMINO_ACIDS:
            if symbol != tokens[i]:
                other = tokens.copy()
                other[i] = symbol
                moved = np.linalg.norm(np.asarray(jm.apply(model, other))[0] - base)
                assert found.lower[i, symbol] - 1e-10 <= moved
                assert moved <= found.upper[i, symbol] + 1e-10
                assert moved > 1e-4

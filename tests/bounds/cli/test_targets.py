"""Every target that a word names, by commands and functions alike."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import TARGETS
from jax_models.model.readout import Pooling
from tests.bounds.cli.outputs import read_csv, read_json

TOKENS = [0, 2, 1, 1, 0]


@pytest.mark.parametrize("name", [x for x, one in TARGETS.items() if not one.form])
def test_commands_watch_what_functions_watch(name, run, make_model, tmp_path):
    weight = np.random.default_rng(1).standard_normal((3, 4))
    model = dataclasses.replace(
        make_model(vocab_size=3),
        readout=jm.Readout(jnp.asarray(weight)),
        pooling=Pooling(),
    )
    jm.save(model, tmp_path / "model.safetensors")
    (tmp_path / "tokens.txt").write_text(" ".join(map(str, TOKENS)))
    given = [f"--model={tmp_path}/model.safetensors", f"--target={name}"]
    given += [f"--tokens={tmp_path}/tokens.txt", "--method=exhaustive"]
    for command, function in (
        ("influence", bounds.compute_influence),
        ("scan", bounds.scan),
    ):
        asked = run(command, *given, "--rounding=none")
        assert (asked.code, asked.err) == (0, "")
        found = function(
            model, TOKENS, method="exhaustive", rounding="none", target=name
        )
        there = found.max if command == "influence" else np.nanmax(abs(found.values))
        assert there > 1e-6
        assert read_json(command)["max"] == pytest.approx(there, rel=1e-9)
        assert len(read_csv(command)) == found.substitutions
    assert read_json("scan")["target"] == name

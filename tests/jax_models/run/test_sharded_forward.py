"""The forward pass over many devices is that of one, to the bit where it can be."""

import dataclasses
import re
import socket
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

import jax_models as jm
from jax_models.model.mask import MASKS
from jax_models.run import blocks, evaluate
from jax_models.run.evaluate import forward_sharded, share_out
from jax_models.weighting import WEIGHTINGS
from tests.architecture import small_model, with_attention
from tests.bounds.influence.expect import refused
from tests.covering import cover
from tests.jax_models.variants import FACTORS, SHAPE, TOKENS, allowed, build
from tests.long_inputs import long_inputs

CLOSE = {"rtol": 1e-12, "atol": 1e-13}
MANY = jnp.asarray(np.random.default_rng(1).integers(0, 3, 45))


def draw(weighting, **options):
    return small_model(
        5, **{**SHAPE, "num_layers": 2, "weighting": weighting, **options}
    )


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "tile_elements", lambda: 8 * 2 * 6)
    monkeypatch.setattr(evaluate, "BLOCKS_TOGETHER", 2)
    evaluate._compiled.cache_clear()
    yield
    evaluate._compiled.cache_clear()


@pytest.mark.parametrize("case", cover(FACTORS, 1, allowed), ids=lambda c: c["mask"])
def test_every_feature_is_that_of_one_device(case):
    model = build(case)
    shared = jm.apply(model, TOKENS, mesh=jm.device_mesh(3))
    np.testing.assert_allclose(shared, jm.apply(model, TOKENS), **CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("case", cover(FACTORS, 2, allowed), ids=lambda c: c["mask"])
def test_any_two_features_are_those_of_one_device(case):
    model = build(case, num_layers=2)
    for devices in (2, 8):
        shared = jm.apply(model, TOKENS, mesh=jm.device_mesh(devices))
        np.testing.assert_allclose(shared, jm.apply(model, TOKENS), **CLOSE)


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_one_two_and_eight_devices_agree_to_the_bit(name, small_blocks):
    model = draw(name, mask="future", layer_norm="pre", num_layers=1)
    found = {
        devices: forward_sharded(model, MANY, jm.device_mesh(devices))
        for devices in (1, 2, 8)
    }
    chex.assert_trees_all_equal(found[2], found[8])
    chex.assert_trees_all_equal(found[1], found[8])
    y, reports = jm.forward(model, MANY)
    np.testing.assert_allclose(found[8][0], y, **CLOSE)
    chex.assert_trees_all_close(found[8][1], reports, **CLOSE)
    assert [x is None for x in reports] == [name == "softmax"]


@pytest.mark.parametrize("length", [1, 2, 7, 9])
def test_devices_may_be_more_than_tokens_or_not_divide_them(length):
    model = draw("softmax", mask="strict_past", num_classes=7)
    shared = jm.apply_logits(model, MANY[:length], mesh=jm.device_mesh(8))
    assert shared.shape == (length, 7)
    np.testing.assert_allclose(shared, jm.apply_logits(model, MANY[:length]), **CLOSE)


def without_scores(model):
    """The model with every score zero: all keys that are seen are tied."""

    def silence(attention):
        zero = jnp.zeros_like(attention.query)
        return {"query": zero, "query_bias": jnp.zeros_like(attention.query_bias)}

    return with_attention(model, silence)


@pytest.mark.parametrize("mask", MASKS)
def test_ties_between_devices_go_to_the_same_key(mask):
    for name in ("leftmost_hard", "rightmost_hard", "average_hard"):
        model = without_scores(draw(name, mask=mask, num_layers=1))
        shared = jm.apply(model, MANY, mesh=jm.device_mesh(8))
        np.testing.assert_allclose(shared, jm.apply(model, MANY), **CLOSE)


def test_the_row_of_an_ambiguous_tie_is_that_of_one_device():
    """Many rows of both heads are ambiguous, on every device."""
    model = draw("leftmost_hard", num_layers=1, tie_resolution=0.05)
    said = []
    for mesh in (None, jm.device_mesh(2), jm.device_mesh(8)):
        with pytest.raises(jm.TieError) as caught:
            jm.apply(model, MANY, mesh=mesh)
        said.append(re.findall(r"layer 0, row \d+:", str(caught.value)))
    assert said[0] == said[1] == said[2] != []


def test_a_merge_without_the_last_tile_is_noticed(monkeypatch):
    fold = evaluate.fold_stacked
    monkeypatch.setattr(
        evaluate,
        "fold_stacked",
        lambda merge, stacked: fold(merge, jax.tree.map(lambda x: x[:-1], stacked)),
    )
    evaluate._compiled.cache_clear()
    model = draw("softmax", mask="future", num_layers=1)
    tokens = jnp.append(MANY, MANY[:3])  # no tile is empty
    shared = jm.apply(model, tokens, mesh=jm.device_mesh(2))
    evaluate._compiled.cache_clear()
    assert np.abs(shared - jm.apply(model, tokens)).max() > 1e-3


@pytest.mark.slow
@long_inputs
def test_a_device_holds_its_share_and_nothing_of_size_n_by_n():
    """Bytes of one device's program, by the compiler's account of its buffers."""
    model, n = draw("softmax", num_layers=1), 2**17

    def bytes_held(devices, n):
        shares, mesh = share_out(n, devices), jm.device_mesh(devices)
        tokens = jax.ShapeDtypeStruct((shares.share * devices,), jnp.int32)
        wide = jax.ShapeDtypeStruct((*tokens.shape, model.width), model.dtype)
        bare = dataclasses.replace(model, position=None)
        program = evaluate._compiled(shares, mesh).lower(bare, tokens, wide)
        return program.compile().memory_analysis().temp_size_in_bytes

    one, twice, eight = bytes_held(1, n), bytes_held(1, 2 * n), bytes_held(8, n)
    assert twice < 2.5 * one < n**2 / 32
    assert eight < one / 3


def test_questions_that_do_not_fit_are_refused():
    model, mesh = draw("softmax"), jm.device_mesh(2)
    other = Mesh(mesh.devices, ("keys",))
    with refused(r"axes \('keys',\); expected"):
        jm.apply(model, MANY, mesh=other)
    with refused("not traced by JAX"):
        jax.jit(lambda x: jm.apply(model, x, mesh=mesh))(MANY)
    with refused("not traced by JAX"):
        jax.grad(lambda m: jm.apply(m, MANY, mesh=mesh).sum())(model)
    with refused("token 3 at position 0"):
        jm.apply(model, [3], mesh=mesh)
    table = jm.PositionTable(jnp.zeros((4, SHAPE["d_model"])))
    short = dataclasses.replace(model, position=table)
    with refused(r"n = 45 .* 4 rows"):
        jm.apply(short, MANY, mesh=mesh)


PROCESS = """
import sys
import jax
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_num_cpu_devices", 2)
address, number, changed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
jax.distributed.initialize(address, 2, number, initialization_timeout=60)
import numpy as np
import jax_models as jm
model = jm.random_transformer(
    jax.random.key(5), num_layers=2, num_heads=2, d_model=8, d_ff=12, vocab_size=3,
    weighting="leftmost_hard", mask="future", dtype="float64",
)
tokens = np.random.default_rng(1).integers(0, 3, 45)
if number == 1 and changed:
    tokens[7] = (tokens[7] + 1) % 3
mesh = jm.device_mesh()
assert mesh.size == 4
try:
    shared = np.asarray(jm.apply(model, tokens, mesh=mesh))
except jm.InputError as error:
    print(error)
else:
    np.testing.assert_allclose(shared, jm.apply(model, tokens), rtol=1e-12, atol=1e-13)
    print("same")
jax.distributed.shutdown()
"""


@pytest.mark.slow
@pytest.mark.parametrize("changed", [0, 1])
def test_two_processes_agree_with_one_or_refuse(changed):
    with socket.socket() as free:  # a port that was free a moment ago
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, address, str(number), str(changed)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in (0, 1)
    ]
    told = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], told
    expected = "process 1 was asked another question" if changed else "same"
    assert all(f"\n{expected}" in out for out, _ in told), told

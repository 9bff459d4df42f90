"""Certificates where rounding is large: they hold the influence of the stored weights.

In each model the rounding of one quantity governs, either of the base pass (its radii)
or of a change. Taken away, the certificate falls below the influence of 60 digits.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.lemma5.certificate import base_pass, certify_influence, references
from tests.bounds.lemma5.certificate.cancelling import (
    ATTENTION,
    BLOCK,
    TOKENS,
    exact_influence,
    model,
    quiet,
    without_sum,
)

pytestmark = pytest.mark.usefixtures("quick_compilation")
COMMON = 1e8


def shared(tensors, columns=2):
    """Adds the common part to some coordinates of all rows, and hides it."""
    tensors["embedding"][:, :columns] += COMMON
    for name in ("query", "key", "value"):
        tensors[ATTENTION + name][..., :columns] = 0
    tensors[BLOCK + "w1"][:, :columns] = 0


def keys(seed):
    config, t = quiet(seed)
    shared(t)
    t[ATTENTION + "key"][..., :2] = without_sum(
        np.random.default_rng(seed).normal(size=(1, 2, 2))
    )
    return config, t


def queries(seed):
    config, t = quiet(seed)
    shared(t)
    t[ATTENTION + "query"][..., 0] = 0.3
    t[ATTENTION + "query_bias"] -= 0.3 * COMMON
    return config, t


def values(seed):
    config, t = quiet(seed)
    shared(t)
    t[ATTENTION + "value"][..., :2] = [0.3, -0.3]
    return config, t


def gelu_preactivations(seed):
    config, t = quiet(seed, activation="gelu")
    shared(t)
    t[BLOCK + "w1"][:, 0], t[BLOCK + "w1"][:, 1] = 0.3, -0.3
    return config, t


def relu_preactivations(seed):
    """One neuron alone is read, and it is what rounding leaves of zero."""
    config, t = quiet(seed)
    common, head = 1e4 * (1 + seed) / 3, ATTENTION + "value"
    t["embedding"][...] = [[common, common, 1e-13 * k, 0] for k in (0, 1, 3)]
    for name in (head, ATTENTION + "output", BLOCK + "w1", BLOCK + "b1", BLOCK + "w2"):
        t[name][...] = 0
    t[head][0, 0, 2] = t[ATTENTION + "output"][0, 0] = t[BLOCK + "w2"][3, 0] = 1
    t[BLOCK + "w1"][0, :2] = [0.1, -0.1]
    t |= {"readout.weight": np.eye(4)[3:], "readout.bias": np.zeros(1)}
    return config, t


def sums_in_front_of_a_norm(seed, layer_norm="post"):
    config, t = quiet(seed, layer_norm=layer_norm)
    t[ATTENTION + "output_bias"] += COMMON
    return config, t


def blocks_in_front_of_a_norm(seed):
    config, t = quiet(seed, layer_norm="post")
    t[BLOCK + "b2"] += COMMON
    return config, t


def rows_in_front_of_a_norm(seed):
    config, t = quiet(seed, layer_norm="pre")
    t["embedding"] += COMMON
    t[BLOCK + "w2"][...] = 0
    return config, t


def final_norms(seed):
    """The residual sum cancels, and the final norm reads what is left."""
    config, t = quiet(seed)
    t |= {"final_norm.scale": np.ones(4), "final_norm.bias": np.zeros(4)}
    shared(t)
    t[ATTENTION + "output_bias"][:2] -= COMMON
    return config, t


def additive_scores(seed):
    config, t = quiet(seed, score="additive")
    shared(t)
    t[ATTENTION + "key"][..., :2] = [0.3, -0.3]
    return config, t


def second_layers(seed):
    config, t = quiet(seed, num_layers=2)
    shared(t)
    t[BLOCK + "b2"][:2] -= COMMON
    return config, t


SLOW = [
    sums_in_front_of_a_norm,
    blocks_in_front_of_a_norm,
    rows_in_front_of_a_norm,
    final_norms,
    additive_scores,
    second_layers,
]
BASES = [keys, queries, values, relu_preactivations, gelu_preactivations]
ALL = [*BASES, *(pytest.param(x, marks=pytest.mark.slow) for x in SLOW)]


def without_base_radii(monkeypatch):
    """Planted: the base pass is taken to be exact."""
    prepare = base_pass.prepare_pass

    def planted(request):
        found = prepare(request)
        held = tuple(
            dataclasses.replace(x, radius=jax.tree.map(jnp.zeros_like, x.radius))
            for x in found.held
        )
        return dataclasses.replace(found, held=held)

    monkeypatch.setattr(references, "prepare_pass", planted)


@pytest.mark.parametrize("draw", ALL)
def test_the_rounding_of_the_base_pass_is_held(draw, monkeypatch):
    seen = []
    for seed in range(3):
        config, tensors = draw(seed)
        target = "logits" if "readout.weight" in tensors else "activation"
        exact = exact_influence(config, tensors, TOKENS, target=target)
        asked, built = ~np.isnan(exact), model(config, tensors)
        found = certify_influence(built, TOKENS, target=target).upper
        assert (found[asked] >= exact[asked]).all()
        with monkeypatch.context() as planted:
            without_base_radii(planted)
            broken = certify_influence(built, TOKENS, target=target).upper
        seen.append((broken[asked] < exact[asked]).any())
    assert any(seen)


def value_changes(seed):
    """W_V removes nearly all of how far the row moves, and no weight is uncertain."""
    config, t = quiet(seed, vocab_size=12)
    t[ATTENTION + "value"][..., :2] = [0.3, -0.3]
    # Only one key counts, before and after.
    for name in ("query", "key"):
        t[ATTENTION + name][...] = 0
    t[ATTENTION + "query_bias"][0, 0] = t[ATTENTION + "key"][0, 0, 3] = 1
    t["embedding"][:, 3] = np.where(np.arange(12) < 2, 0.0, 40.0)
    return apart(config, t, COMMON, 1.0)


def key_changes(seed):
    """W_K does, and the query is large."""
    config, t = quiet(seed, vocab_size=12)
    t[ATTENTION + "key"][..., 2:] *= 1e-4
    t[ATTENTION + "key"][..., :2] = [0.3, -0.3]
    t[ATTENTION + "query"][...] = t[ATTENTION + "value"][..., :2] = 0
    t[ATTENTION + "query_bias"][...] = [1e4, -5e3]
    t["embedding"][:3, :2] = 0
    return apart(config, t, 1e4, 1e-4)


def query_changes(seed):
    """W_Q does, and the keys are large; where the query's own token is replaced."""
    config, t = quiet(seed, vocab_size=12)
    t[ATTENTION + "query"][..., 2:] *= 1e-6
    t[ATTENTION + "query"][..., :2] = [0.3, -0.3]
    t[ATTENTION + "key"][..., 2:] *= 1e6
    t[ATTENTION + "key"][..., :2] = t[ATTENTION + "value"][..., :2] = 0
    t["embedding"][:3, :2] = 0
    return apart(config, t, 1e4, 1e-6)


def head_changes(seed):
    """The output projection removes nearly all of what the values change."""
    config, t = quiet(seed, vocab_size=12)
    t["embedding"][:3, :2] = t[ATTENTION + "value"][..., 2:] = 0
    t[ATTENTION + "value"] *= 1e4
    t[ATTENTION + "value"][0, 1] = t[ATTENTION + "value"][0, 0] * (1 + 1e-9)
    t[ATTENTION + "output"] *= 1e4
    t[ATTENTION + "output"][:, 1] = -t[ATTENTION + "output"][:, 0]
    return config, t


def block_changes(seed):
    """Two active neurons write opposite changes."""
    config, t = quiet(seed, vocab_size=12)
    t[BLOCK + "w1"] *= 1e4
    t[BLOCK + "w1"][1] = t[BLOCK + "w1"][0] * (1 + 1e-9)
    t[BLOCK + "b1"][...] = 1e6
    t[BLOCK + "w2"] *= 1e4
    t[BLOCK + "w2"][:, 1], t[BLOCK + "w2"][:, 2] = -t[BLOCK + "w2"][:, 0], 0
    return config, t


def readouts_of_changes(seed):
    """The read-out removes nearly all of the change, of which a layer adds none."""
    config, t = quiet(seed, num_layers=0, vocab_size=12)
    t["embedding"][3:, :2] += COMMON
    t |= {"readout.weight": np.array([[0.3, -0.3, 0, 0]]), "readout.bias": np.zeros(1)}
    return config, t


def reading(config, t):
    """With a read-out of the last two coordinates."""
    t |= {"readout.weight": np.eye(4)[2:], "readout.bias": np.zeros(2)}
    return config, t


def apart(config, t, common, difference):
    """All symbols but those of the input are far away, alike in two coordinates."""
    draw = np.random.default_rng(0)
    t["embedding"][3:, 0] = common * (1 + draw.uniform(size=9))
    t["embedding"][3:, 1] = t["embedding"][3:, 0] + difference * draw.normal(size=9)
    t[BLOCK + "w1"][:, :2] = 0
    return reading(config, t)


CHANGES = [
    value_changes,
    key_changes,
    query_changes,
    block_changes,
    head_changes,
    readouts_of_changes,
]


@pytest.mark.parametrize("draw", CHANGES)
def test_the_rounding_of_changes_is_held(draw):
    for seed in range(2):
        config, tensors = draw(seed)
        target = "logits" if "readout.weight" in tensors else "activation"
        options = {"target": target, "include_query": True}
        exact = exact_influence(config, tensors, TOKENS, **options)
        built = model(config, tensors)
        found = certify_influence(built, TOKENS, **options).upper
        asked = ~np.isnan(exact)
        assert (found[asked] >= exact[asked]).all()

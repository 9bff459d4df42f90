"""Certificates where rounding is large: they hold the influence of the stored weights.

In each model the rounding of one quantity governs, either of the base pass (its radii)
or of a change. Taken away, the certificate falls below the influence of 60 digits.
"""

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import reference
from bounds.lemma5.certificate import base_pass, certify, certify_influence
from jax_models.format.build import build_model

TOKENS = np.array([0, 1, 2, 0, 1])
ATTENTION, BLOCK = "layers.0.attention.", "layers.0.ffn."


def quiet(
    seed, num_layers=1, vocab_size=3, final_norm=False, **options
) -> tuple[Any, Any]:
    """Configuration and tensors of a model of ordinary size, no position encoding."""
    draw = np.random.default_rng(seed)
    layer = {
        "weighting": "softmax",
        "mask": "none",
        "score": options.pop("score", "dot_product"),
        "temperature": None,
    }
    config = {
        "format": "attention-bounds/1",
        "layer_norm": "none",
        "layer_norm_epsilon": 1e-2,
        "activation": "relu",
        **options,
        "layers": [layer] * num_layers,
    }
    tensors = {"embedding": draw.normal(size=(vocab_size, 4))}
    norms = ["final_norm"] * final_norm
    for depth in range(num_layers):
        attention, block = f"layers.{depth}.attention.", f"layers.{depth}.ffn."
        drawn = {attention + x: (1, 2, 4) for x in ("query", "key", "value")}
        zero = {name + "_bias": (1, 2) for name in drawn}
        if layer["score"] == "additive":
            drawn[attention + "score_vector"] = (1, 2)
        drawn |= {attention + "output": (4, 2)}
        drawn |= {block + "w1": (3, 4), block + "b1": (3,), block + "w2": (4, 3)}
        zero |= {attention + "output_bias": (4,), block + "b2": (4,)}
        tensors |= {name: draw.normal(size=shape) for name, shape in drawn.items()}
        tensors |= {name: np.zeros(shape) for name, shape in zero.items()}
        if config["layer_norm"] != "none":
            norms += [f"layers.{depth}.norm{number}" for number in (1, 2)]
    for norm in norms:
        tensors |= {norm + ".scale": np.ones(4), norm + ".bias": np.zeros(4)}
    return config, tensors


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
    weight = np.random.default_rng(seed).normal(size=(1, 2, 2))
    # Rows that ignore what all entries have in common.
    t[ATTENTION + "key"][..., :2] = weight - weight.mean(axis=-1, keepdims=True)
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
    config, t = quiet(seed, final_norm=True)
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


BASES = [
    keys,
    queries,
    values,
    relu_preactivations,
    gelu_preactivations,
    sums_in_front_of_a_norm,
    blocks_in_front_of_a_norm,
    rows_in_front_of_a_norm,
    final_norms,
    additive_scores,
    second_layers,
]


def without_base_radii(monkeypatch):
    """Planted: the base pass is taken to be exact."""
    prepare = base_pass.prepare_pass

    def exact(held):
        none = jax.tree.map(jnp.zeros_like, held.radius)
        return dataclasses.replace(held, radius=none)

    def planted(request):
        found = prepare(request)
        held, replaced = map(exact, found.held), exact(found.replaced)
        return dataclasses.replace(found, held=tuple(held), replaced=replaced)

    monkeypatch.setattr(certify, "prepare_pass", planted)


def compared(draw, seed, **options):
    """The influence with 60 digits, and a function that certifies it."""
    config, tensors = draw(seed)
    options["target"] = "logits" if "readout.weight" in tensors else "activation"
    digits = reference.multiprecision(60)
    exact = reference.influence(config, tensors, TOKENS, arithmetic=digits, **options)
    asked, built = ~np.isnan(exact), build_model(config, tensors)
    certify = lambda: certify_influence(built, TOKENS, **options).upper[asked]
    return exact[asked], certify


@pytest.mark.parametrize("draw", BASES)
def test_the_rounding_of_the_base_pass_is_held(draw, monkeypatch):
    seen = []
    for seed in range(3):
        exact, certify = compared(draw, seed)
        assert (certify() >= exact).all()
        with monkeypatch.context() as planted:
            without_base_radii(planted)
            seen.append((certify() < exact).any())
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
        exact, certify = compared(draw, seed, include_query=True)
        assert (certify() >= exact).all()


SHORT = np.array([0, 1, 2])
DIGITS = reference.multiprecision(700)
METHODS = ("centred", "base")
SIZES = [1e2, 1e4, 1e8, 1e12, 1e50, 1e103, 1e130, 1e150, 1e160, 1e200, 1e250, 1e300]
FACTORS = SIZES + [1 / size for size in SIZES]


def drawn(num_layers, layer_norm, final_norm, **options):
    """Configuration and tensors of one seed."""
    norms = {"layer_norm": layer_norm, "final_norm": final_norm}
    return quiet(3, num_layers, **norms, **options)


def times(tensors, name, factor):
    """The tensors with one of them times a factor; None where it overflows."""
    with np.errstate(over="ignore"):
        scaled = {**tensors, name: tensors[name] * factor}
    return scaled if np.isfinite(scaled[name]).all() else None


def missed(config, tensors, methods=METHODS):
    """Certified bounds, and those below the truth, with it: {method: ...}."""
    exact = reference.influence(
        config, tensors, SHORT, include_query=True, arithmetic=DIGITS
    )
    asked, built, found = ~np.isnan(exact), build_model(config, tensors), {}
    for method in methods:
        said = certify_influence(built, SHORT, method=method, include_query=True).upper
        assert (np.isnan(said) == ~asked).all()
        below = said[asked] < exact[asked]
        found[method] = list(zip(said[asked][below], exact[asked][below], strict=True))
    return found


def assert_holds(config, tensors, name, factor):
    scaled = times(tensors, name, factor)
    if scaled is not None:
        found = missed(config, scaled)
        assert not any(found.values()), (name, factor, found)


# Below the truth, as first computed: 0, or the centre alone.
ONCE_MISSED = [
    ("none", "attention.value", 1e12),
    ("none", "attention.query", 1e150),
    ("none", "ffn.w2", 1e300),
    ("pre", "attention.query", 1e150),
    ("pre", "attention.output", 1e150),
    ("pre", "attention.value", 1e300),
    ("post", "attention.query", 1e150),
    ("post", "ffn.w2", 1e150),
    ("post", "attention.value", 1e300),
]


@pytest.mark.parametrize(("layer_norm", "name", "factor"), ONCE_MISSED)
def test_a_radius_that_is_no_number_certifies_nothing(layer_norm, name, factor):
    config, tensors = drawn(2, layer_norm, True)
    for depth in range(2):
        assert_holds(config, tensors, f"layers.{depth}.{name}", factor)


def kinds():
    """Every kind of model there is a program for."""
    for layers, norm, final in itertools.product(
        (1, 2), ("none", "pre", "post"), (False, True)
    ):
        yield layers, norm, final, {}
    yield 2, "none", True, {"score": "additive"}
    yield 2, "pre", True, {"score": "additive", "activation": "gelu"}


def assert_sampled(kind, count, seed):
    """Some pairs of a tensor and a factor."""
    layers, norm, final, options = kind
    config, tensors = drawn(layers, norm, final, **options)
    pairs = list(itertools.product(tensors, FACTORS))
    np.random.default_rng(seed).shuffle(pairs)
    for name, factor in pairs[:count]:
        assert_holds(config, tensors, name, float(factor))


@pytest.mark.parametrize("norm", ["none", "pre", "post"])
def test_no_certificate_is_below_the_truth_of_some_scaled_weights(norm):
    assert_sampled((2, norm, True, {}), 5, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(kinds()), ids=str)
def test_no_certificate_is_below_the_truth_of_scaled_weights(kind):
    assert_sampled(kind, 100, seed=0)


def test_what_a_norm_lets_through_is_certified_whatever_enters():
    """The last layer's query reads numbers that overflowed; its output is bounded."""
    config, tensors = drawn(2, "none", True)
    scaled = times(tensors, "layers.0.ffn.w2", 1e300)
    assert scaled is not None
    for method in METHODS:
        found = certify_influence(build_model(config, scaled), SHORT, method=method)
        assert 4 <= found.max_upper <= 4.05  # two outputs of length 2
        assert found.uncertified == 0
    without = {k: x for k, x in scaled.items() if "final_norm" not in k}
    for method in METHODS:
        found = certify_influence(build_model(config, without), SHORT, method=method)
        assert np.isposinf(found.input_upper).sum() == found.substitutions == 4
        assert found.basis == "all inputs"


def test_a_zero_in_place_of_what_is_no_number_is_seen(monkeypatch):
    """The comparison that was, where the radius may be NaN: the oracle tells."""
    config, tensors = drawn(2, "pre", True)
    scaled = times(tensors, "layers.0.attention.query", 1e150)

    def product(gain, radius):
        # The factor for rounding is a float, and makes radii that are no numbers; those of
        # the output are arrays, and take these for 0.
        if isinstance(gain, float):
            return gain * radius * jnp.nan
        return jnp.where(radius > 0, gain * radius, 0.0)

    monkeypatch.setattr(base_pass, "times", product)
    planted = lambda *args: base_pass.certified_norms(*args)  # a program of its own
    monkeypatch.setattr(base_pass, "_finish", jax.jit(planted, static_argnums=1))
    assert missed(config, scaled, ("base",))["base"]


@pytest.mark.parametrize(
    ("name", "factor", "num_layers"),
    [
        *(
            (name, factor, 2)
            for name in ("embedding", "attention.value", "ffn.w2")
            for factor in (1e-155, 1e-290)
        ),
        # Of three layers not one row of the second is its base's.
        ("embedding", 1e-155, 3),
    ],
)
def test_numbers_whose_squares_underflow_are_bounded(name, factor, num_layers):
    """Of every layer at once."""
    config, tensors = drawn(num_layers, "none", False)
    for key in [x for x in tensors if x.endswith(name)]:
        tensors[key] = tensors[key] * factor
    assert not any(missed(config, tensors).values())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [1e160, 1e308])
def test_of_numbers_that_overflow_this_input_certifies_nothing(size, method):
    config, tensors = drawn(2, "none", False)
    tensors["embedding"] *= size / np.abs(tensors["embedding"]).max()
    found = certify_influence(build_model(config, tensors), SHORT, method=method)
    assert np.isposinf(found.input_upper).sum() == found.substitutions == 4
    # The closed form is a number as long as it is below 10^308.
    assert np.isposinf(found.max_upper) == (size == 1e308)
    assert found.uncertified == (4 if size == 1e308 else 0)


def test_nothing_is_certified_behind_a_gelu_whose_exponential_overflows():
    config, tensors = drawn(2, "none", False, activation="gelu")
    tensors["layers.0.ffn.b1"][:] = -1e300
    found = certify_influence(build_model(config, tensors), SHORT)
    assert found.max_upper == np.inf

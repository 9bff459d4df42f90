"""Radii of subtracted passes that are sampled: they hold, and in proportion."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability, exhaustive
from bounds.influence.noise import Noise, _attend, rounded
from bounds.influence.targets import LogProbabilities
from bounds.numbers import rounding
from jax_models.model.rows import ACTIVATIONS, NORMS, Affine, Join, Product, Sum

pytestmark = pytest.mark.usefixtures("quick_compilation")
N, V = 24, 6
SHAPE = {"num_layers": 2, "num_heads": 2, "d_model": 32, "d_ff": 64, "vocab_size": V}
PROPORTION = 1e3  # of the 99th percentile of errors, at most
MODELS = {
    "post-norm": {"layer_norm": "post", "activation": "gelu"},
    "gated": {
        **{"layer_norm": "pre", "norm": "rms_norm", "final_norm": True},
        **{"activation": "silu", "gated": True, "mask": "future"},
    },
    "additive": {"score": "additive", "combine": "concat", "activation": "relu"},
}


def drawn(name):
    key = jax.random.key(3)
    model = jm.random_transformer(
        key, dtype="float32", num_classes=5, **SHAPE, **MODELS[name]
    )
    tokens = np.random.default_rng(1).integers(0, V, N)
    exact = jax.tree.map(
        lambda x: x.astype("float64") if x.dtype == jnp.float32 else x, model
    )
    return model, exact, tokens


@functools.cache
def truth(name, target):
    """In float64, by one method for all."""
    _, exact, tokens = drawn(name)
    asked = {"rows": "all", "positions": range(1, N, 5), "method": "partial"}
    return bounds.scan(exact, tokens, target=target, **asked)


def errors_and_radii(name, model=None, *, target="logits", method="partial"):
    found = bounds.scan(
        drawn(name)[0] if model is None else model,
        drawn(name)[2],
        rows="all",
        positions=range(1, N, 5),
        target=target,
        method=method,
    )
    true = truth(name, target)
    there = np.isfinite(true.values) & (true.values != 0)
    errors = np.abs(found.values - true.values)[there]
    return errors, (found.upper - found.values)[there]


@pytest.mark.parametrize(
    ("name", "method"),
    [("post-norm", "partial"), ("gated", "exhaustive"), ("additive", "partial")],
)
def test_the_truth_is_inside_and_the_radius_in_proportion(name, method):
    errors, radii = errors_and_radii(name, method=method)
    assert (errors < 0.2 * radii).all()
    # Scores that are not bilinear count their largest terms, for all keys together.
    most = PROPORTION * (10 if name == "additive" else 1)
    assert np.median(radii) < most * np.quantile(errors, 0.99)


def test_products_of_norms_alone_are_out_of_proportion(monkeypatch):
    monkeypatch.setattr(exhaustive, "WIDE", np.inf)
    errors, radii = errors_and_radii("post-norm")
    assert np.median(radii) > 10 * PROPORTION * np.quantile(errors, 0.99)


@pytest.mark.parametrize("target", [LogProbability(1), LogProbabilities()])
def test_the_truth_is_inside_at_targets_of_logits(target):
    errors, radii = errors_and_radii("post-norm", target=target)
    assert (errors < 0.2 * radii).all()
    assert np.median(radii) < PROPORTION * np.quantile(errors, 0.99)


def test_an_error_that_rounding_does_not_explain_is_outside():
    """Values that are a fifth off."""
    model, _, _ = drawn("post-norm")
    off = jax.tree_util.tree_map_with_path(
        lambda path, x: x * 1.2 if "value" in jax.tree_util.keystr(path) else x, model
    )
    errors, radii = errors_and_radii("post-norm", off)
    assert np.median(errors / radii) > 3


def test_radii_without_samples_are_caught(monkeypatch):
    monkeypatch.setattr(rounding, "DEVIATIONS", rounding.DEVIATIONS / 1e5)
    errors, radii = errors_and_radii("post-norm")
    assert (errors > 3 * radii).any()


def test_every_operation_has_a_rule():
    operations = [*ACTIVATIONS.values(), Product(), Sum(), Join(2)]
    kinds = {type(x) for x in operations} | {Affine, LogProbabilities, *NORMS.values()}
    nothing = rounded.dispatch(object)
    assert all(rounded.dispatch(kind) is not nothing for kind in kinds)


def test_the_mean_square_of_samples_is_the_sum_of_squares():
    """Of a map behind another: e is what either sum of products is off by."""
    draws = np.random.default_rng(0)
    first, second = (draws.standard_normal((5, 5)) for _ in range(2))
    row = draws.standard_normal((1, 5))

    def sample(key):
        def run(scale):
            made = Noise(key, jnp.asarray(False), scale)
            y = rounded(Affine(jnp.asarray(first)), made, jnp.asarray(row))
            return rounded(Affine(jnp.asarray(second)), made, y)

        return jax.jvp(run, (0.0,), (1.0,))[1]

    found = jax.vmap(sample)(jax.random.split(jax.random.key(0), 4000))
    inner, outer = row @ first.T, row @ first.T @ second.T

    def off(sums, weight, rows):
        each = np.sqrt(rows**2 @ (weight**2).T)
        return np.sqrt(5) * (abs(sums) + each) + abs(sums)

    squares = off(inner, first, row) ** 2 @ (second**2).T
    squares += off(outer, second, inner) ** 2
    np.testing.assert_allclose((found**2).mean(axis=0), squares, rtol=0.1)


def test_rows_that_are_equal_round_alike_in_half_of_the_samples():
    """A mean over them is then off by what each is, not by a root of their number less."""
    row = jnp.ones((64, 3))
    key = jax.random.key(0)

    def mean(alike):
        def run(scale):
            return Noise(key, jnp.asarray(alike), scale)(row, row).mean(axis=0)

        return jax.jvp(run, (0.0,), (1.0,))[1]

    assert (abs(mean(True)) == 1).all()
    assert (abs(mean(False)) < 0.5).all()


def deviations(run, samples=64):
    """What float32 numbers may be off by, by samples of a function of a noise [...]."""

    def sample(key):
        def scaled(scale):
            return run(Noise(key, jnp.asarray(False), scale))

        return jax.jvp(scaled, (0.0,), (1.0,))[1]

    found = jax.lax.map(sample, jax.random.split(jax.random.key(1), samples))
    return np.sqrt((found**2).mean(axis=0)) * rounding.unit_roundoff("float32")


def root_mean_square(numbers):
    return np.sqrt((np.asarray(numbers, np.float64) ** 2).mean())


def single(model):
    return jax.tree.map(
        lambda x: x.astype("float32") if x.dtype == jnp.float64 else x, model
    )


@pytest.mark.parametrize(
    ("name", "mean"),
    [*((name, 0) for name in (*NORMS, *ACTIVATIONS)), *((name, 100) for name in NORMS)],
)
def test_an_operation_is_off_by_no_more_than_its_rule_says(name, mean):
    draws = np.random.default_rng(2)
    if name in NORMS:
        count = len(NORMS[name].tensors())
        tensors = np.float32(draws.standard_normal((count, 32)))
        operation = NORMS[name](*jnp.asarray(tensors, float), 1e-6)
    else:
        operation = ACTIVATIONS[name]
    rows = jnp.asarray(np.float32(mean + draws.standard_normal((64, 32))), float)
    low = single(operation)(rows.astype("float32"))
    off = np.asarray(low, np.float64) - operation(rows)
    said = deviations(lambda noise: rounded(operation, noise, rows))
    assert root_mean_square(off) <= root_mean_square(said)
    if name != "relu":  # it rounds nothing
        assert root_mean_square(said) < 300 * root_mean_square(off)


def test_what_heads_attend_to_is_off_by_no_more_than_is_said():
    """Of many keys the errors of values average out, and those of their mean do not."""
    attention = drawn("post-norm")[1].layers[0].attention
    draws = np.random.default_rng(3).standard_normal((512, 32))
    inputs = jnp.asarray(np.float32(3 + 0.01 * draws), float)
    at = jnp.arange(512, dtype=jnp.int32)

    def attend(attention, noise, inputs):
        return _attend(attention, noise, inputs, at, inputs)

    def exactly(attention, inputs):
        still = Noise(
            jax.random.key(0), jnp.asarray(False), jnp.zeros((), inputs.dtype)
        )
        return attend(attention, still, inputs)

    low = exactly(single(attention), inputs.astype("float32"))
    off = np.asarray(low, np.float64) - exactly(attention, inputs)
    said = deviations(lambda noise: attend(attention, noise, inputs), 8)
    assert root_mean_square(off) <= root_mean_square(said)
    assert root_mean_square(said) < 1000 * root_mean_square(off)

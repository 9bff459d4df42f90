"""The parts of a certificate, each against its definition on random cases."""

import dataclasses
import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.influence.propagation.pointwise import RowBase
from bounds.lemma5.certificate.base_pass import certified_norms
from bounds.lemma5.certificate.base_radius import centred
from bounds.lemma5.certificate.mean_deviation import (
    ColumnMove,
    OtherMoves,
    mean_deviation,
    odds_change,
)
from bounds.lemma5.certificate.norm_gain import (
    norm_gains,
    norm_jacobian,
    norm_rounding,
    slope_strays,
    step_strays,
)
from bounds.lemma5.certificate.pointwise import row_norms
from bounds.lemma5.certificate.sections import layer_constants, section_constants
from bounds.numbers.norms import spectral_norms
from jax_models.model.rows import ACTIVATIONS, LayerNorm
from tests.bounds.lemma5.certificate.one_layer import (
    D,
    N,
    bare,
    build,
    draw_layer,
    prepared,
)
from tests.bounds.lemma5.certificate.plain_lemma import softmax

RNG = np.random.default_rng(0)


def test_spectral_norms_are_upper_bounds_within_two_percent():
    for shape in ((50, 8, 8), (50, 3, 8), (50, 8, 1), (50, 1, 1)):
        matrices = RNG.normal(size=shape) * np.exp(RNG.uniform(-300, 300, (50, 1, 1)))
        exact = np.linalg.norm(matrices, 2, axis=(1, 2))
        found = np.asarray(spectral_norms(jnp.asarray(matrices)))
        assert (found >= exact * (1 - 1e-13)).all()
        assert (found <= exact * 1.02).all()
    assert spectral_norms(jnp.zeros((4, 4))) == 0


def test_a_weight_moves_as_its_log_odds_say():
    weight, exponent = RNG.uniform(0.01, 0.99, 200), RNG.uniform(0, 3, 200)
    logit = np.log(weight / (1 - weight))
    moved = [np.abs(1 / (1 + np.exp(-logit - s * exponent)) - weight) for s in (1, -1)]
    found = odds_change(*map(jnp.asarray, (weight, 1 - weight, exponent)))
    np.testing.assert_allclose(found, np.maximum(*moved), rtol=1e-10)
    # To first order weight (1 - weight) exponent, with all its digits.
    tiny = odds_change(*map(jnp.asarray, (1e-5, 1 - 1e-5, 1e-12)))
    np.testing.assert_allclose(tiny, 1e-5 * (1 - 1e-5) * 1e-12, rtol=1e-11)
    assert odds_change(*map(jnp.asarray, (1e-300, 1.0, 1e4))) == 1
    # What remains beside a weight that is 1 to the last bit moves too.
    assert odds_change(*map(jnp.asarray, (1.0, 1e-30, 1.0))) > 1e-30
    # However little remains, odds that fall by more leave nothing of the weight.
    for remain, exponent in ((1e-20, 100.0), (1e-200, 550.0), (1e-300, 900.0)):
        assert odds_change(*map(jnp.asarray, (1.0, remain, exponent))) > 0.999


@pytest.mark.parametrize("linear", [False, True])
def test_the_perturbation_lemma_holds_in_the_worst_corners(linear):
    """Errors at their limits, in all signs: the true change is within the bound."""
    closest = np.inf

    @jax.jit
    def lemma(own, others):
        return mean_deviation(ColumnMove(**own), OtherMoves(**others), log_weight=0.0)

    for _ in range(300):
        n, i = 5, 2
        size = 10.0 ** RNG.uniform(-3, 0.5)
        score, values = 3 * RNG.normal(size=n), RNG.normal(size=(n, 2))
        error, radius = size * RNG.uniform(size=(2, n))
        a, others = softmax(score), np.arange(n) != i
        c = np.where(others, a, 0) / a[others].sum()
        mean, away = c @ values, np.linalg.norm(values - c @ values, axis=1)
        signs = RNG.choice([-1.0, 1.0], n)
        signs[0] = 1.0
        delta = signs * error
        l = (c * delta) @ (values - mean) if linear else np.zeros(2)
        growth = np.expm1(error) - error if linear else np.expm1(error)
        far = [np.linalg.norm(l), radius[others].max()]
        own = {"weight": a[i], "remain": 1 - a[i], "exponent": error[i]}
        moves = {
            "slack": (c * np.expm1(error))[others].sum(),
            "linear": far[0],
            "remainder": (c * growth * away)[others].sum(),
            "values": (c * np.exp(error) * radius)[others].sum(),
            "largest_value": far[1],
            "farthest": (away[others] + radius[others]).max(),
        }
        bound = lemma({**own, "jump": away[i], "value": radius[i]}, moves)
        new = softmax(score + delta)
        # The values move against the mean's change, where they do most.
        push = new @ values - a @ values - (1 - a[i]) * l
        moved = values + radius[:, None] * push / np.linalg.norm(push)
        true = np.linalg.norm(new @ moved - a @ values - (1 - a[i]) * l)
        assert true <= bound * (1 + 1e-12)
        closest = min(closest, float(bound) / true)
    # The bound is not vacuous: some corner comes near it.
    assert closest < 1.5


def test_a_layer_norm_is_within_its_gain_variation_and_rounding():
    """Jacobians in a ball, and changes of two rows a base radius apart."""
    d, steepest, farthest = 6, 0.0, 0.0
    norm = LayerNorm(jnp.asarray(RNG.normal(size=d)), jnp.zeros(d), 1e-3)
    slope, change = jax.jit(jax.jacobian(norm)), jax.jit(LayerNorm.change)
    gains, ours = jax.jit(norm_gains), jax.jit(norm_jacobian)
    rounding = jax.jit(norm_rounding)
    for _ in range(300):
        row, moved, step = RNG.normal(size=(3, d))
        row *= 10 ** RNG.uniform(-2, 1)
        moved *= 10 ** RNG.uniform(-3, 0.5)
        step /= np.linalg.norm(step)
        radius, base = 10 ** RNG.uniform(-3, 0, 2)
        gain, bend = gains(norm, row, moved, radius, base)
        jacobian = slope(row + moved + step * (radius + base))
        size = np.linalg.norm(jacobian, 2)
        assert size <= gain * (1 + 1e-12)
        steepest = max(steepest, size / gain)
        here = ours(norm, row)
        np.testing.assert_allclose(here, slope(row), atol=1e-12)
        apart = np.linalg.norm(jacobian - here, 2)
        assert apart <= bend * (1 + 1e-12)
        bound = rounding(norm, row, moved, base)
        near, far = (change(norm, x, moved) for x in (row, row + step * base))
        assert np.linalg.norm(far - near) <= bound
        farthest = max(farthest, np.linalg.norm(far - near) / bound)
    assert steepest > 0.5
    assert farthest > 0.2


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_steps_and_slopes_stray_no_further_than_they_are_said_to(activation):
    bend = ACTIVATIONS[activation]
    z, moved = map(jnp.asarray, RNG.normal(size=(2, 500)))
    known, spread = map(jnp.asarray, RNG.uniform(0, [[0.5], [1.5]], (2, 500)))
    steps, slopes = (
        step_strays(bend, z, moved, known),
        slope_strays(bend, z, moved, spread),
    )
    change, derivative = jax.jit(bend.change), jax.jit(jax.vmap(jax.grad(bend)))
    step, slope = change(z, moved), bend.slope(z)
    np.testing.assert_allclose(slope, derivative(z), atol=1e-12)
    reached = np.zeros(500)
    for share in np.linspace(-1, 1, 21):
        apart = change(z + share * known, moved) - step
        reached = np.maximum(reached, np.abs(apart))
        at = derivative(z + moved + share * spread)
        assert (np.abs(at - slope) <= slopes + 1e-12).all()
    assert (reached <= np.asarray(steps) + 1e-12).all()
    # Some come near; ReLU units that keep their side do not stray at all.
    assert (reached > 0.6 * np.asarray(steps))[reached > 1e-9].any()
    for strays in map(np.asarray, (steps, slopes)):
        assert (strays == 0).any() == (activation == "relu")


def test_the_norm_of_a_jacobian_holds_where_its_entries_cancel():
    """Two neurons write 1e16 times the same and leave what rounding is as large as."""
    d, below = 4, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        reads, writes = 1e8 * rng.uniform(1, 2, 2)
        first = {(0, 0): reads, (1, 0): reads * 3}
        second = {(0, 0): writes, (0, 1): -writes / 3}
        steep = bare({"score": "dot_product"}, w1=first, w2=second)
        w1, w2 = (np.asarray(getattr(steep.feed_forward, x)) for x in ("w1", "w2"))
        active = RowBase({"preactivation": jnp.ones((1, 8))})
        sections = SimpleNamespace(sections=section_constants(steep))
        held: Any = SimpleNamespace(layer=steep, constants=sections)
        (norms,) = row_norms(held, active).local.values()
        (found,) = norms["summed"]
        terms = [Fraction(w2[0, u]) * Fraction(w1[u, 0]) for u in range(2)]
        exact = max(1.0, abs(float(1 + sum(terms))))
        assert found >= exact
        computed = spectral_norms(jnp.eye(d) + w2 @ w1)
        below += bool(computed < 0.9 * exact)
    # Without the product's own rounding a number of these would be too small.
    assert below > 0


DRAW = np.random.default_rng(0)


def test_the_variation_of_a_layer_norm_is_nearly_attained():
    """Where |w|²/d is half of epsilon, along w: 2/√3 of the allowed 2 per step."""
    d, epsilon = 6, 1e-2
    norm = LayerNorm(jnp.ones(d), jnp.zeros(d), epsilon)
    row = DRAW.normal(size=d)
    row -= row.mean()
    row *= math.sqrt(epsilon * d / 2) / np.linalg.norm(row)
    step = 1e-5 * row
    still = jnp.asarray(0.0)
    _, bend = norm_gains(norm, jnp.asarray(row), jnp.asarray(step), still, still)
    before, after = (norm_jacobian(norm, jnp.asarray(x)) for x in (row, row + step))
    apart = np.linalg.norm(after - before, 2)
    assert 0.55 * bend < apart <= bend


def normed(scale, gain):
    """A model of a last norm of one scale and a read-out that multiplies by a gain."""
    model = build({"num_layers": 1, "final_norm": True, "layer_norm_epsilon": 1e-9})
    one, zero = jnp.ones(model.width), jnp.zeros(model.width)
    norm = dataclasses.replace(model.final_norm, scale=scale * one)
    readout = dataclasses.replace(model.readout, weight=jnp.diag(gain * one), bias=zero)
    return dataclasses.replace(model, final_norm=norm, readout=readout)


def certified(model, target, row, moved, radius):
    """Certificate of the change of the output of a row that moves."""
    certify = jax.jit(certified_norms, static_argnames="target")
    given = row, 0.0, moved[None], np.array([radius])
    return float(certify(model, target, *map(jnp.asarray, given))[0])


@pytest.mark.parametrize("target", ["activation", "logits"])
def test_opposite_rows_are_as_far_apart_as_a_final_norm_lets_them(target):
    """N(-w) - N(w) is 2 √d long: no smaller number caps the change of the output."""
    model, gain = normed(2, 3), 3 if target == "logits" else 1
    row, norm = DRAW.normal(size=model.width), model.final_norm
    exact = gain * np.linalg.norm(norm(jnp.asarray(-row)) - norm(jnp.asarray(row)))
    cap = gain * 2 * 2 * math.sqrt(model.width)
    assert exact == pytest.approx(cap, rel=1e-6)
    for radius in (0.0, 1e9):
        found = certified(model, target, row, -2 * row, radius)
        assert exact <= found * (1 + 1e-12)
        assert found <= cap * 1.03


@pytest.mark.parametrize("target", ["activation", "logits"])
def test_a_radius_is_carried_by_the_norm_where_the_row_has_moved_to(target):
    """A row of size 10 moves to one of 0.1, where the norm is a hundred times steeper."""
    model, radius = normed(1, 1), 1e-3
    norm = model.final_norm
    row, error = np.zeros(model.width), np.zeros(model.width)
    row[:2], error[2:4] = (10.0, -10.0), (1.0, -1.0)
    moved, error = -0.99 * row, error * radius / math.sqrt(2)
    still, strayed = (norm(jnp.asarray(row + moved + x)) for x in (0, error))
    # Along the error: its own length is what the radius adds to the centre's.
    strayed = np.linalg.norm(strayed - still)
    around, centre = (certified(model, target, row, moved, x) for x in (radius, 0.0))
    assert strayed <= around - centre <= 1.6 * strayed
    # The Jacobian at the base row alone would add a hundredth.
    jacobian = norm_jacobian(norm, jnp.asarray(row))
    assert 50 * np.linalg.norm(jacobian, 2) * radius < strayed


def size(x):
    return np.linalg.norm(x, axis=-1)


@pytest.mark.parametrize(
    ("case", "values"),
    [
        ({"combine": "concat"}, 1.0),
        ({"combine": "concat"}, 0.0),  # of the layer its block alone
        ({"layer_norm": "pre"}, 1.0),
        ({"layer_norm": "post"}, 1.0),
    ],
    ids=str,
)
def test_base_quantities_of_true_rows_are_within_their_radii(case, values):
    layer = draw_layer({"score": "dot_product", "mask": "none", **case})
    value = values * layer.attention.value
    attention = dataclasses.replace(layer.attention, value=value)
    layer = dataclasses.replace(layer, attention=attention)
    constants = layer_constants(layer)
    rng, closest = np.random.default_rng(0), 0.0
    rows = rng.normal(size=(N, D))
    for off in (1e-9, 1e-2, 1.0, 1e3):
        found = prepared(layer, rows, off, constants=constants)
        for _ in range(20):
            step = rng.normal(size=(N, D))
            moved = rows + off * step / size(step)[:, None]
            there = prepared(layer, moved, constants=constants)
            for name, allowed in found.radius.by_row.rows.items():
                moved = there.base.rows[name] - found.base.rows[name]
                moved = np.abs(moved) if name == "preactivation" else size(moved)
                assert (moved <= allowed).all()
            moved = size(there.output - found.output)
            assert (moved <= found.radius.output).all()
            closest = max(closest, (moved / found.radius.output).max())
    # Not by being wide.
    assert closest > 0.1


def test_centring_rounds_like_what_is_centred():
    rows = 1e8 * (1 + np.random.default_rng(0).uniform(size=(50, 6)))
    computed = rows - rows.mean(axis=1, keepdims=True)
    exact = rows.astype(np.longdouble)
    exact -= exact.mean(axis=1, keepdims=True)
    off = size((computed - exact).astype(float))
    assert (off <= centred(jnp.asarray(rows), jnp.zeros(50))).all()
    assert off.max() > 1e-9

"""The parts of a certificate, each against its definition on random cases."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bounds.certificate.matrix_norm import spectral_norms
from bounds.certificate.mean_deviation import mean_deviation, odds_change
from bounds.certificate.norm_gain import norm_gains, norm_jacobian
from bounds.certificate.pointwise import activation_slopes
from bounds.certificate.pointwise_radius import slope_strays
from jax_models.layers import LayerNorm, activate

RNG = np.random.default_rng(0)


def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


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
    found = odds_change(jnp.asarray(weight), jnp.asarray(exponent))
    np.testing.assert_allclose(found, np.maximum(*moved), rtol=1e-10)
    # To first order weight (1 - weight) exponent, with all its digits.
    tiny = odds_change(jnp.asarray(1e-5), jnp.asarray(1e-12))
    np.testing.assert_allclose(tiny, 1e-5 * (1 - 1e-5) * 1e-12, rtol=1e-11)
    assert odds_change(jnp.asarray(1e-300), jnp.asarray(1e4)) == 1


@pytest.mark.parametrize("linear", [False, True])
def test_the_perturbation_lemma_holds_in_the_worst_corners(linear):
    """Errors at their limits, in all signs: the true change is within the bound."""
    closest = np.inf
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
        bound = mean_deviation(
            weight=jnp.asarray(a[i]),
            exponent=jnp.asarray(error[i]),
            slack=jnp.asarray((c * np.expm1(error))[others].sum()),
            jump=jnp.asarray(away[i]),
            linear=jnp.asarray(far[0]),
            remainder=jnp.asarray((c * growth * away)[others].sum()),
            own_value=jnp.asarray(radius[i]),
            values=jnp.asarray((c * np.exp(error) * radius)[others].sum()),
            largest_value=jnp.asarray(far[1]),
            farthest=jnp.asarray(
                max(
                    (1 - a[i]) * away[i] + radius[i],
                    (away[others] + radius[others]).max() + a[i] * away[i],
                )
                + (1 - a[i]) * far[0]
            ),
        )
        new = softmax(score + delta)
        # The values move against the mean's change, where they do most.
        push = new @ values - a @ values - (1 - a[i]) * l
        moved = values + radius[:, None] * push / np.linalg.norm(push)
        true = np.linalg.norm(new @ moved - a @ values - (1 - a[i]) * l)
        assert true <= bound * (1 + 1e-12)
        closest = min(closest, float(bound) / true)
    # The bound is not vacuous: some corner comes near it.
    assert closest < 1.5


def test_a_layer_norm_is_within_its_gain_and_variation():
    d = 6
    norm = LayerNorm(jnp.asarray(RNG.normal(size=d)), jnp.zeros(d), 1e-3)
    largest = jnp.abs(norm.scale).max()
    worst = 0.0
    for _ in range(300):
        row = RNG.normal(size=d) * 10 ** RNG.uniform(-2, 1)
        moved = RNG.normal(size=d) * 10 ** RNG.uniform(-3, 0)
        radius = 10 ** RNG.uniform(-3, 0)
        gain, bend = norm_gains(
            norm, largest, *map(jnp.asarray, (row, moved)), jnp.asarray(radius)
        )
        step = RNG.normal(size=d)
        at = row + moved + step * (radius / np.linalg.norm(step))
        jacobian = norm_jacobian(norm, jnp.asarray(at))
        size = np.linalg.norm(jacobian, 2)
        assert size <= gain * (1 + 1e-12)
        worst = max(worst, size / gain)
        apart = np.linalg.norm(jacobian - norm_jacobian(norm, jnp.asarray(row)), 2)
        assert apart <= bend * (1 + 1e-12)
    assert worst > 0.5


def test_the_jacobian_of_a_layer_norm_is_its_derivative():
    norm = LayerNorm(jnp.asarray(RNG.normal(size=5)), jnp.ones(5), 1e-2)
    row = jnp.asarray(RNG.normal(size=5))
    np.testing.assert_allclose(
        norm_jacobian(norm, row), jax.jacobian(norm)(row), atol=1e-13
    )


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_slopes_stray_no_further_than_they_are_said_to(activation):
    z, moved = RNG.normal(size=(2, 500))
    spread = RNG.uniform(0, 1.5, 500)
    slopes = np.asarray(activation_slopes(activation, jnp.asarray(z)))
    derivative = jax.vmap(jax.grad(lambda x: activate(activation, x)))
    np.testing.assert_allclose(slopes, derivative(jnp.asarray(z)), atol=1e-12)
    most = jnp.asarray(2 * 1.1289042 - 1)
    strays = slope_strays(activation, *map(jnp.asarray, (z, moved, spread)), most)
    for share in np.linspace(-1, 1, 21):
        at = derivative(jnp.asarray(z + moved + share * spread))
        assert (np.abs(at - slopes) <= strays + 1e-12).all()
    assert (np.asarray(strays) == 0).any() == (activation == "relu")

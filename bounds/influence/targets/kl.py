"""The Kullback-Leibler divergence of the changed distribution from the base's.

The distributions are softmaxes of a row's logits: of the unchanged input, the base, and
of one with a symbol replaced.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.influence.targets.base import Target
from bounds.influence.targets.log_probability import relative_to_likeliest
from jax_models.model.pytree import pytree

# Terms of the series of e^c - 1 - c for |c| < 1/2: the next is below 2^-53 of the first.
TERMS = 14


def exponential_remainder(c: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """e^c - 1 - c, by its Taylor series where |c| < 1/2, as the terms cancel there."""
    series = jnp.zeros_like(c)
    for k in range(TERMS + 1, 1, -1):
        series = series * c + 1 / math.factorial(k)
    return jnp.where(jnp.abs(c) < 0.5, series * c * c, jnp.expm1(c) - c)


def centred_changes(
    logits: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
) -> Float[Array, "*batch vocab"]:
    """Changes of the logits less their mean under p = softmax(logits)."""
    # What changes have in common would round in the mean, and drops out of the difference.
    change = relative_to_likeliest(logits, change)
    mean = (jax.nn.softmax(logits, axis=-1) * change).sum(axis=-1, keepdims=True)
    return change - mean


def relative_entropy(
    logits: Float[Array, "vocab"], centred: Float[Array, "*batch vocab"]
) -> Float[Array, "*batch 1"]:
    """KL(p || q) of p = softmax(logits), q = softmax(logits + centred changes c)."""
    # log q = log p + c - log sum_v p_v e^(c_v), and sum_v p_v c_v = 0, hence KL = log sum_v
    # p_v e^(c_v) = log1p(sum_v p_v (e^(c_v) - 1 - c_v)). These terms are not negative:
    # nothing cancels.
    logs = jax.nn.log_softmax(logits, axis=-1)
    raised = logs + centred
    # e^c of an unlikely symbol may be beyond the floats where p e^c is not.
    terms = jnp.where(
        centred > 1,
        jnp.exp(raised) - jnp.exp(logs) * (1 + centred),
        jnp.exp(logs) * exponential_remainder(jnp.minimum(centred, 1)),
    )
    near = jnp.log1p(terms.sum(axis=-1, keepdims=True))
    far = jax.nn.logsumexp(raised, axis=-1, keepdims=True)
    return jnp.where(raised.max(axis=-1, keepdims=True) > 1, far, near)


@pytree
class KullbackLeibler(Target):
    """KL(base || changed) = sum_v p_v log(p_v / q_v), in nats."""

    name = "kl"
    least_logits = 2
    label = "KL(base ‖ changed), nats"

    def change(
        self, base: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch 1"]:
        """KL(softmax(base) || softmax(base + change)), in nats."""
        return relative_entropy(base, centred_changes(base, change))

"""The Jensen-Shannon divergence between base and changed distribution.

The distributions are softmaxes of a row's logits: of the unchanged input, the base, and
of one with a symbol replaced.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.influence.targets.base import Target
from bounds.influence.targets.kl import centred_changes, relative_entropy
from jax_models.model.pytree import pytree


def divergence_factor(h: Float[Array, "*batch"]) -> Float[Array, "*batch"]:
    """h tanh h - log cosh h, about h^2 / 2 where h is small, log 2 where it is large."""
    # cosh h = 1 + 2 sinh(h / 2)^2 keeps the digits of a small h.
    near = h * jnp.tanh(h) - jnp.log1p(2 * jnp.sinh(h / 2) ** 2)
    h = jnp.abs(h)
    tail = jnp.exp(-2 * h)
    # log cosh h = h - log 2 + log(1 + e^(-2 h)), and h cancels against h tanh h by hand.
    far = math.log(2) - jnp.log1p(tail) - 2 * h * tail / (1 + tail)
    return jnp.where(h < 1, near, far)


@pytree
class JensenShannon(Target):
    """(KL(p || m) + KL(q || m)) / 2 with m = (p + q) / 2, in nats; p base, q changed."""

    name = "jensen_shannon"
    least_logits = 2
    label = "JS(base, changed), nats"

    def change(
        self, base: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch 1"]:
        """Jensen-Shannon divergence, from base logits and their changes."""
        # With h_v = log(q_v / p_v) / 2 it is m_v = p_v e^(h_v) cosh h_v, and JS the sum over
        # v of m_v (h_v tanh h_v - log cosh h_v), whose terms are not negative: nothing
        # cancels. log(q_v / p_v) is the centred change less the relative entropy.
        centred = centred_changes(base, change)
        moved = centred - relative_entropy(base, centred)
        logs = jax.nn.log_softmax(base, axis=-1)
        mean = (jnp.exp(logs) + jnp.exp(logs + moved)) / 2
        return (mean * divergence_factor(moved / 2)).sum(axis=-1, keepdims=True)

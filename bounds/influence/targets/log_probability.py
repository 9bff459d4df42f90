"""Log-probabilities as targets: of all symbols, of one, or its negative, the loss.

A target is a quantity watched of a model's output. The base is a row of logits of the
unchanged input, and changes are its changes when a symbol of the input is replaced.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bounds.influence.targets.base import STATIC, Target
from jax_models.arguments import expect_integer
from jax_models.model.pytree import pytree


def log_sum_exponential(x: Float[Array, "*batch vocab"]) -> Float[Array, "*batch 1"]:
    """log sum_k e^(x_k), relatively accurate where the largest x_k is 0."""
    # As x_top + log(1 + S), S the sum of e^(x_k - x_top) over the others: a small S would
    # round alike in inputs that are nearly alike, and in runs with moved inputs.
    top = jnp.argmax(x, axis=-1, keepdims=True)
    largest = jnp.take_along_axis(x, top, axis=-1)
    others = jnp.arange(x.shape[-1], dtype=top.dtype) != top
    total = jnp.exp(x - largest).sum(axis=-1, keepdims=True, where=others)
    return largest + jnp.log1p(total)


def log_mean_exponential(
    logits: Float[Array, "*rows vocab"], change: Float[Array, "*batch vocab"]
) -> Float[Array, "*batch 1"]:
    """log sum_k p_k e^(change_k), with p = softmax(logits)."""
    # As log(1 + S), S = sum_k p_k (e^(change_k) - 1), where S is small: no two logarithms are
    # subtracted, and entries without a change add exactly 0.
    parts = jax.nn.softmax(logits, axis=-1) * jnp.expm1(change)
    small = parts.sum(axis=-1, keepdims=True)
    total = jax.nn.logsumexp(logits + change, axis=-1, keepdims=True)
    large = total - jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    return jnp.where(jnp.abs(small) < 0.5, jnp.log1p(small), large)


def relative_to_likeliest(
    logits: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
) -> Float[Array, "*batch vocab"]:
    """Changes of logits less the change of the likeliest symbol's logit."""
    top = jnp.argmax(logits, axis=-1)
    return change - jnp.take(change, top, axis=-1)[..., None]


@pytree
class LogProbabilities(Target):
    """The logarithms of the softmax of the logits, one for each symbol, in nats."""

    name = "log_probabilities"
    least_logits = 2
    label = "‖Δ log-probabilities‖₂, nats"

    def value(self, base: Float[Array, "vocab"]) -> Float[Array, "vocab"]:
        """Log-probability of each symbol, from a row of logits."""
        base = base - base.max(axis=-1, keepdims=True)
        return base - log_sum_exponential(base)

    def change(
        self, base: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch vocab"]:
        """Change of each log-probability, from changes of the logits."""
        # Softmax ignores what all logits have in common, and it would round here.
        others = relative_to_likeliest(base, change)
        return others - log_mean_exponential(base, others)

    def entry_symbols(self, width: int) -> Int[np.ndarray, "width"]:
        """All symbols in order: entry v is of symbol v."""
        return np.arange(width)


@pytree
class LogProbability(Target):
    """The log-probability of one symbol, in nats."""

    name = "log_probability"
    least_logits = 2
    form = ":S"
    symbol_fields = ("symbol",)
    label = "|Δ log-probability|, nats"

    symbol: int = dataclasses.field(metadata=STATIC)

    def __post_init__(self) -> None:
        expect_integer("symbol", self.symbol, 0)

    def value(self, base: Float[Array, "vocab"]) -> Float[Array, "1"]:
        """Log-probability of the symbol, from a row of logits."""
        return -log_sum_exponential(base - base[..., self.symbol, None])

    def change(
        self, base: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch 1"]:
        """Change of the symbol's log-probability, from changes of the logits."""
        others = change - change[..., self.symbol, None]
        return -log_mean_exponential(base, others)


@pytree
class Loss(LogProbability):
    """The cross-entropy loss of a symbol in nats: minus its log-probability."""

    name = "loss"
    label = "|Δ loss|, nats"

    def value(self, base: Float[Array, "vocab"]) -> Float[Array, "1"]:
        """Loss of the symbol, from a row of logits."""
        return -super().value(base)

    def change(
        self, base: Float[Array, "vocab"], change: Float[Array, "*batch vocab"]
    ) -> Float[Array, "*batch 1"]:
        """Change of the loss, from changes of the logits."""
        return -super().change(base, change)

"""A recurrent network: the contrast, whose state one symbol may change at every distance.

h_t = relu(W h_{t-1} + U[x_t] + b) from h_0 = 0, and logits read off h_t. Weights are a
pytree, everything that computes is a pure function of them.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, PRNGKeyArray

from jax_models.errors import InputError
from jax_models.model.pytree import register
from jax_models.model.readout import Readout
from jax_models.model.rows import linear
from jax_models.random_key import expect_key
from jax_models.run.float_type import check_float_type


@register
@dataclasses.dataclass(frozen=True)
class ElmanNetwork:
    """An Elman network with rectified units (Elman 1990); k is its width."""

    embedding: Float[Array, "symbols units"]  # what each symbol adds to the units
    recurrent: Float[Array, "units units"]  # stored (out, in)
    bias: Float[Array, "units"]
    readout: Readout  # [classes, k]

    @property
    def dtype(self) -> Any:
        """The float type of the parameters."""
        return self.embedding.dtype

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.embedding.shape[0]


def hidden_states(
    network: ElmanNetwork, tokens: Int[Array, "tokens"]
) -> Float[Array, "tokens units"]:
    """Returns the states h_1 .. h_n; pure, traceable, O(n k²)."""

    def step(state: Array, entering: Array) -> tuple[Array, Array]:
        state = jax.nn.relu(linear(state, network.recurrent) + entering)
        return state, state

    first = jnp.zeros_like(network.bias)
    return jax.lax.scan(step, first, network.embedding[tokens] + network.bias)[1]


def final_state(
    network: ElmanNetwork, tokens: Int[Array, "tokens"]
) -> Float[Array, "units"]:
    """Returns the last state h_n.

    With its network bound (`functools.partial`) and compiled (`jax.jit`) it is a function
    of tokens alone, whose influences `bounds.compute_influence` finds by its definition.
    """
    return hidden_states(network, tokens)[-1]


def init_elman(
    key: PRNGKeyArray,
    *,
    width: int,
    vocab_size: int,
    num_classes: int,
    dtype: Any = jnp.float32,
) -> ElmanNetwork:
    """Returns an Elman network initialised for training.

    The recurrent matrix is the identity, which carries gradients far (Le, Jaitly and
    Hinton 2015); symbols and read-out are Gaussian of deviation 1/√k, biases zero.
    """
    check_float_type(dtype, "the network asked for")
    sizes = {"width": width, "vocab_size": vocab_size, "num_classes": num_classes}
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name} = {size}; expected at least 1")
    expect_key(key)
    symbols, readout = jax.random.split(key)
    deviation = width**-0.5
    return ElmanNetwork(
        jax.random.normal(symbols, (vocab_size, width), dtype) * deviation,
        jnp.eye(width, dtype=dtype),
        jnp.zeros(width, dtype),
        Readout(
            jax.random.normal(readout, (num_classes, width), dtype) * deviation,
            jnp.zeros(num_classes, dtype),
        ),
    )

"""Recurrent networks, where one symbol may change the state at every distance.

h_t = relu(W h_{t-1} + U[x_t] + b) from h_0 = 0, and logits read off h_t. Weights are a
pytree, and all functions of them are pure. The networks are a contrast to transformers:
PARITY of long strings is beyond soft attention (Hahn 2020, Theorem 6); two rectified units
compute it at every length.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int, PRNGKeyArray

from jax_models.arguments import expect_number
from jax_models.errors import InputError
from jax_models.jax_arguments import check_float_type, expect_key
from jax_models.languages.base import check_probability
from jax_models.model.pytree import pytree
from jax_models.model.readout import Readout
from jax_models.model.rows import linear


@pytree
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
        """Number of symbols, V."""
        return self.embedding.shape[0]


def hidden_states(
    network: ElmanNetwork, tokens: Int[Array, "tokens"]
) -> Float[Array, "tokens units"]:
    """Returns the states h_1 .. h_n of k units; pure, traceable, O(n k²)."""

    def step(
        state: Float[Array, "units"], entering: Float[Array, "units"]
    ) -> tuple[Float[Array, "units"], Float[Array, "units"]]:
        state = jax.nn.relu(linear(state, network.recurrent) + entering)
        return state, state

    first = jnp.zeros_like(network.bias)
    return jax.lax.scan(step, first, network.embedding[tokens] + network.bias)[1]


def init_elman(
    key: PRNGKeyArray,
    *,
    width: int,
    vocab_size: int,
    num_classes: int,
    dtype: Any = jnp.float32,
) -> ElmanNetwork:
    """Returns an Elman network initialised for training."""
    check_float_type(dtype, "the network asked for")
    sizes = {"width": width, "vocab_size": vocab_size, "num_classes": num_classes}
    for name, size in sizes.items():
        if size < 1:
            raise InputError(f"{name} = {size}; expected at least 1")
    expect_key(key)
    symbols, readout = jax.random.split(key)
    # Symbols and read-out are Gaussian of deviation 1/√k, biases zero. The recurrent matrix
    # is the identity, which carries gradients far (Le, Jaitly and Hinton 2015).
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


def rnn_parity(
    end_probability: float, sharpness: float, *, dtype: Any = jnp.float32
) -> ElmanNetwork:
    """Returns the recurrent network that follows the PARITY source.

    With state (a, b) from (0, 0) and z_t = a_{t-1} + b_{t-1} - x_t the units are
    a_t = relu(z_t) and b_t = relu(-z_t), so that a_t + b_t = |a_{t-1} + b_{t-1} - x_t|:
    if the old sum is the parity of t - 1 bits, the new one is that of t. All states are
    0 or 1, exactly, in any float type; flipping one bit changes a_n + b_n by 1, and the
    state by distance 1, for every n.

    The logits of 0 and 1 are zero and that of END is ln(2p / (1-p)) - B (a + b): from an
    even count END has its probability p, from an odd one e^-B p / (1 - p + e^-B p). The
    cross-entropy is above the optimum by ln(1 + e^-B p / (1-p)) / 2 at every n >= 1,
    which falls to 0 as B grows.

    Args:
        end_probability: p of the source, inside (0, 1).
        sharpness: B >= 0.
        dtype: float32 or float64.

    Returns:
        The network: symbols 0 and 1, classes 0, 1, END.

    Raises:
        InputError: for p or B out of range, or float64 without x64.

    Source:
        docs/theory/parity.md, section 3.
    """
    check_float_type(dtype, "the network asked for")
    check_probability("end probability p", end_probability)
    expect_number("sharpness B", sharpness, 0)
    p, b = end_probability, sharpness
    return ElmanNetwork(
        embedding=jnp.asarray([[0, 0], [-1, 1]], dtype),
        # With z_t = a_{t-1} + b_{t-1} - x_t the units are relu(z_t) and relu(-z_t), whose sum
        # is |z_t|: the parity of one bit more, exactly.
        recurrent=jnp.asarray([[1, 1], [-1, -1]], dtype),
        bias=jnp.zeros(2, dtype),
        readout=Readout(
            jnp.asarray([[0, 0], [0, 0], [-b, -b]], dtype),
            jnp.asarray([0, 0, math.log(2 * p / (1 - p))], dtype),
        ),
    )

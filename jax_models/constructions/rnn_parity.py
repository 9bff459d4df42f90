"""PARITY in a recurrent network of two units: influence that does not fall with n.

The contrast to Hahn 2020, Theorem 6: what soft attention cannot hold on to for long
strings, two rectified units do for strings of every length.
"""

import math
from typing import Any

import jax.numpy as jnp

from jax_models.arguments import expect_number
from jax_models.constructions.rnn import ElmanNetwork
from jax_models.languages.source import check_probability
from jax_models.model.readout import Readout
from jax_models.run.float_type import check_float_type


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
        recurrent=jnp.asarray([[1, 1], [-1, -1]], dtype),
        bias=jnp.zeros(2, dtype),
        readout=Readout(
            jnp.asarray([[0, 0], [0, 0], [-b, -b]], dtype),
            jnp.asarray([0, 0, math.log(2 * p / (1 - p))], dtype),
        ),
    )

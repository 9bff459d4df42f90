"""The tempered twin of a hard model, and how far the two are apart as they are run."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jax_models import ConstantTemperature, Transformer
from jax_models.evaluate import check_ties
from jax_models.reweight import with_temperature, with_weighting
from jax_models.transformer import forward, reduce_reports
from jax_models.weighting import TieReport


def tempered_twin(model: Transformer, temperature: float | Array) -> Transformer:
    """Returns the model with softmax at a temperature in place of hard attention.

    All parameters are the hard model's; its own temperatures, which change no maximum,
    are replaced.

    Args:
        model: A hard model.
        temperature: τ > 0, in every layer.

    Returns:
        The model; it shares all arrays with the given one.
    """
    return with_temperature(
        with_weighting(model, "softmax"), ConstantTemperature(temperature)
    )


def measured_errors(
    model: Transformer, tokens: np.ndarray, temperatures: Sequence[float]
) -> np.ndarray:
    """Returns the largest difference of the two models' final activations, as computed.

    Of either float rounds as it does: at a temperature below the rounding of tied scores
    the twin tells them apart, which over exact reals it does not.

    Args:
        model: The hard model.
        tokens: Inputs [S, n].
        temperatures: τ of the twins [t].

    Returns:
        max over inputs, positions and coordinates, for each temperature [t].

    Raises:
        TieError: Rounding decides a winner of the hard model as it is run.
    """
    inputs = jnp.asarray(tokens, jnp.int32)
    hard, reports = final_activations(model, inputs)
    met = (None if one is None else reduce_reports(one) for one in reports)
    check_ties(model, tuple(met), "error")
    dtype = model.dtype
    twins = (tempered_twin(model, jnp.asarray(tau, dtype)) for tau in temperatures)
    return np.array([float(_largest_difference(twin, inputs, hard)) for twin in twins])


@jax.jit
def final_activations(
    model: Transformer, inputs: Array
) -> tuple[Array, tuple[TieReport | None, ...]]:
    """Returns the final activations of many inputs [S, n, d], and their tie reports [S].

    Args:
        model: A transformer.
        inputs: Tokens [S, n]; not checked here.
    """
    return jax.lax.map(lambda tokens: forward(model, tokens), inputs)


@jax.jit
def _largest_difference(model: Transformer, inputs: Array, hard: Array) -> Array:
    def difference(one: tuple[Array, Array]) -> Array:
        tokens, output = one
        return jnp.abs(forward(model, tokens)[0] - output).max()

    return jax.lax.map(difference, (inputs, hard)).max()

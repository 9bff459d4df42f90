"""Certified upper bounds on the norm of the output's change under substitutions.

The query row is the row whose output is read. Its change in the last layer's output is
within a radius of a known centre.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bounds.influence.request import InfluenceRequest
from bounds.influence.targets.change import target_map
from bounds.lemma5.certificate.base_radius import centred, embedding_radius
from bounds.lemma5.certificate.norm_gain import (
    norm_gains,
    norm_jacobian,
    norm_rounding,
    vector_norms,
)
from bounds.lemma5.certificate.order import bounded, least, times
from bounds.numbers.norms import spectral_norms
from bounds.numbers.rounding import term_roundoff
from jax_models.model.rows import linear
from jax_models.model.transformer import Transformer, embed

HIGHEST = jax.lax.Precision.HIGHEST


def certified_norms(
    model: Transformer,
    target: str,
    output: Float[Array, "width"],
    base: Float[Array, ""],
    centre: Float[Array, "substitutions width"],
    radius: Float[Array, "substitutions"],
) -> Float[Array, "substitutions"]:
    """Upper bounds on the norms of the changes of the target, "activation" or "logits"."""
    # `output` is the base row that enters the final norm, within `base` of the true
    # one; the model's head is one linear map.
    norm, roundoff = model.final_norm, term_roundoff(output.shape[0])
    if norm is None and target == "activation":
        return bounded(vector_norms(centre) * (1 + roundoff) + radius)
    weight = target_map(model, target)
    gain, entries = spectral_norms(weight), vector_norms(weight.reshape(-1))
    if norm is None:
        rounding = 2 * roundoff * entries * vector_norms(centre)
        moved = vector_norms(linear(centre, weight))
        return bounded(moved + times(gain, radius) + rounding)
    base = centred(output, base)
    local, bend = norm_gains(norm, output, centre, radius, base)
    jacobian = jnp.matmul(weight, norm_jacobian(norm, output), precision=HIGHEST)
    # The product of local constants, or the whole Jacobian at the base and its
    # variation.
    carried = least(local * gain, spectral_norms(jacobian) + gain * bend)
    carried = times(carried, radius)
    change = norm.change(output, centre)
    carried += gain * norm_rounding(norm, output, centre, base)
    carried += 2 * roundoff * entries * vector_norms(change)
    # Two outputs of the norm are no further apart, whatever enters it.
    apart = 2 * norm.largest * output.shape[0] ** 0.5 * gain
    return least(vector_norms(linear(change, weight)) + carried, apart)


def exact_without_layers(
    request: InfluenceRequest,
) -> Float[np.ndarray, "substitutions"]:
    """Upper bounds on the influences in a model without layers, exact up to rounding."""
    model, tokens = request.model, request.tokens
    embedding, at = model.embedding, request.position
    # A substitution changes only its own row.
    change = embedding[request.symbol] - embedding[tokens[at]]
    change = jnp.where((at == request.query)[:, None], change, 0.0)
    output = embed(model, jnp.asarray(tokens))[request.query]
    base = embedding_radius(model, output)
    still = jnp.zeros(at.size, change.dtype)
    given = model, request.target, output, base, change, still
    return np.asarray(certified_norms(*given))

"""The closed form for all inputs, where it bounds the substitutions of one input."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bounds.influence.request import InfluenceRequest
from bounds.lemma5.certificate.order import least
from bounds.lemma5.constants import closed_form_bounds
from bounds.numbers.bound import Bound
from jax_models import InputError

# Numbers in the differences of all pairs of symbols, which closed forms need: a second.
MOST_DIFFERENCES = 2**24


def bound_all_inputs(
    request: InfluenceRequest, alone: Float[np.ndarray, "substitutions"]
) -> tuple[Float[np.ndarray, "substitutions"], Bound | None]:
    """The smaller of `alone` and the closed form, and the latter where it is smaller."""
    model, pairs = request.model, request.pairs
    if not len(pairs) or model.vocab_size * model.embedding.size > MOST_DIFFERENCES:
        return alone, None
    asked = {"query": request.query, "target": request.target}
    try:
        form = closed_form_bounds(model, request.tokens.size, **asked).corrected
    except (InputError, ArithmeticError):  # refused, or beyond what it computes with
        return alone, None
    at_query = pairs.position == request.query
    bound = np.where(at_query, form.own.value, form.others.value)
    if model.substitutable is not None:  # distances of embeddings are among these alone
        exchanged = [request.tokens[pairs.position], pairs.symbol]
        bound[~np.isin(exchanged, model.substitutable).all(axis=0)] = np.inf
    upper = np.asarray(least(jnp.asarray(alone), jnp.asarray(bound)))
    return upper, form.others if (upper < alone).any() else None

"""Exact influences of substitutions, over the distance of the two embeddings."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from bounds.influence import compute_influence
from bounds.influence.problem import Target
from jax_models import Transformer

# Lengths up to which all positions are exhausted where no incremental method applies.
EXHAUST_TO = 256
# How many positions, those of largest local norm, are substituted beyond.
POSITIONS = 32
INCREMENTAL_LAYERS = 2


@dataclasses.dataclass(frozen=True)
class Substitution:
    """The substitution of largest ratio on one input, with rounding taken off.

    Attributes:
        ratio: |y_q(x with x_i := s) - y_q(x)| / |embedding of s - embedding of x_i|; 0
            where nothing can be substituted.
        position: i, or None.
        symbol: s, or None.
        influence: The largest influence of any substitution on the input.
        count: How many substitutions were made.
    """

    ratio: float
    position: int | None
    symbol: int | None
    influence: float
    count: int


def all_positions(model: Transformer, length: int) -> bool:
    """Returns whether every position of an input is substituted.

    Beyond two layers each position costs a forward pass, and long inputs have only the
    positions of largest local norm substituted.
    """
    return len(model.layers) <= INCREMENTAL_LAYERS or length <= EXHAUST_TO


def embedding_distances(model: Transformer, tokens: np.ndarray) -> np.ndarray:
    """Returns |embedding[s] - embedding[x_i]| of every substitution [n, V]."""
    embedding = np.asarray(model.embedding, np.float64)
    between = np.array([np.linalg.norm(embedding - e, axis=1) for e in embedding])
    return between[tokens]


def largest_ratio(
    model: Transformer,
    tokens: np.ndarray,
    norms: np.ndarray,
    *,
    query: int,
    target: Target,
    include_query: bool,
) -> Substitution:
    """Returns the substitution that changes the output most per change of embedding.

    Args:
        model: A transformer.
        tokens: The input [n].
        norms: Local norms by position, NaN where none may change [n].
        query: Position of the output.
        target: "activation" or "logits".
        include_query: Whether the query's own token is substituted too.
    """
    positions: Sequence[int] | None = None
    if not all_positions(model, len(tokens)):
        order = np.argsort(-np.nan_to_num(norms, nan=-1.0), kind="stable")
        positions = [int(i) for i in np.sort(order[:POSITIONS])]
    found = compute_influence(
        model,
        tokens,
        query=query,
        target=target,
        positions=positions,
        include_query=include_query,
    )
    assert found.lower is not None
    distances = embedding_distances(model, tokens)
    # Equal embeddings have no influence on anything, and no ratio.
    possible = ~np.isnan(found.lower) & (distances > 0)
    if not possible.any():
        return Substitution(0.0, None, None, found.max_lower, found.substitutions)
    ratio = np.where(possible, found.lower / np.where(possible, distances, 1), -1)
    at = np.unravel_index(np.argmax(ratio), ratio.shape)
    position, symbol = (int(x) for x in at)
    return Substitution(
        float(ratio[at]), position, symbol, found.max_lower, found.substitutions
    )

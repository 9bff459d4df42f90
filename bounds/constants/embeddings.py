"""Norms of the embeddings: what enters the first layer, and what a symbol changes.

Position encodings are read at one length, so that nothing is asked of them beyond it.
"""

import dataclasses

import numpy as np

from bounds.interval import interval, sqrt, upper
from bounds.rounding import gamma
from bounds.spectral import largest_row_norm
from jax_models import Transformer
from jax_models.transformer import encode_positions

# Numbers in one block of symbols against positions.
_BLOCK = 2**22


@dataclasses.dataclass(frozen=True)
class EmbeddingNorms:
    """Upper bounds, over all symbols and the n positions.

    Attributes:
        norm: F_0, of symbol plus position.
        separate: max |position| + max |symbol|, which Hahn 2020 uses for F_0.
        distance: D, between the embeddings of two symbols that may be exchanged.
    """

    norm: float
    separate: float
    distance: float


def read_embeddings(model: Transformer, length: int) -> EmbeddingNorms:
    """Bound the embeddings of a model at one length.

    Args:
        model: The transformer.
        length: n.

    Returns:
        The norms.

    Raises:
        InputError: The position encoding does not reach this length.
    """
    symbols = np.asarray(model.embedding, np.float64)
    positions = np.asarray(encode_positions(model, length), np.float64)
    separate = upper(
        interval(largest_row_norm(symbols)) + interval(largest_row_norm(positions))
    )
    return EmbeddingNorms(
        norm=min(separate, _largest_sum(symbols, positions)),
        separate=separate,
        distance=_largest_distance(symbols, model.substitutable),
    )


def _largest_sum(symbols: np.ndarray, positions: np.ndarray) -> float:
    """Upper bound on |e + p| over all pairs, from |e|² + |p|² + 2 e·p.

    Every term is an inner product of d terms and there are two more additions, so the
    computed square is off by at most γ_{d+2} (|e| + |p|)².
    """
    scale = np.frexp(max(np.max(np.abs(symbols)), np.max(np.abs(positions))))[1]
    e, p = np.ldexp(symbols, -scale), np.ldexp(positions, -scale)
    of_e, of_p = (np.einsum("ij,ij->i", x, x) for x in (e, p))
    rows = max(1, _BLOCK // len(e))
    largest = 0.0
    for start in range(0, len(p), rows):
        part = slice(start, start + rows)
        squares = (of_e + of_p[part, None]) + 2 * (p[part] @ e.T)
        largest = max(largest, float(np.max(squares)))
    reach = interval(largest_row_norm(e)) + interval(largest_row_norm(p))
    hidden = gamma(e.shape[1] + 2) * reach**2
    return upper(sqrt(interval(largest) + hidden) * interval(2) ** int(scale))


def _largest_distance(
    symbols: np.ndarray, substitutable: tuple[int, ...] | None
) -> float:
    chosen = symbols if substitutable is None else symbols[list(substitutable)]
    largest = max((largest_row_norm(chosen - one) for one in chosen), default=0.0)
    # A float difference is within a factor 1 ± u of the true one.
    return upper(interval(largest) / (1 - gamma(1)))

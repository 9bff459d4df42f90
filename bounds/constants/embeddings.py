"""Norms of the embeddings: what enters the first layer, and what a symbol changes.

Position encodings are read at one length, so that nothing is asked of them beyond it:
block by block as long as that is done in a second or so, then in closed form.
"""

import dataclasses
import functools
from collections.abc import Iterator

import numpy as np

from bounds.constants.long_positions import largest_sum_in_closed_form
from bounds.interval import interval, sqrt, upper
from bounds.rounding import gamma
from bounds.spectral import largest_row_norm
from jax_models import Transformer
from jax_models.position import PositionTable

# Numbers in one block of symbols against positions, and in all that are looked at.
_BLOCK, _MOST = 2**18, 2**24


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
    """Bound the embeddings of a model at one length, in memory that does not grow with it.

    Args:
        model: The transformer.
        length: n.

    Returns:
        The norms.

    Raises:
        InputError: The position encoding does not reach this length.
    """
    symbols = np.asarray(model.embedding, np.float64)
    formula = model.position
    if (
        formula is None
        or isinstance(formula, PositionTable)
        or length * model.width <= _MOST
    ):
        place = together = 0.0
        for positions in _position_blocks(model, length):
            place = max(place, largest_row_norm(positions))
            together = max(together, _largest_sum(symbols, positions))
    else:
        question = formula, length, np.dtype(model.dtype)
        none = np.zeros((1, model.width))
        place = largest_sum_in_closed_form(none, *question)
        together = largest_sum_in_closed_form(symbols, *question)
    separate = upper(interval(largest_row_norm(symbols)) + interval(place))
    return EmbeddingNorms(
        norm=min(separate, together),
        separate=separate,
        distance=_largest_distance(symbols, model.substitutable),
    )


def _position_blocks(model: Transformer, length: int) -> Iterator[np.ndarray]:
    """The encodings of all positions, in the model's float type; equal ones once."""
    if model.position is None:
        yield np.zeros((1, model.width))
        return
    if isinstance(model.position, PositionTable):
        read = np.asarray(model.position.encode(length, model.width)).__getitem__
    else:
        read = functools.partial(model.position.encode, length, model.width)
    rows = max(1, _BLOCK // max(model.embedding.shape))
    for start in range(0, length, rows):
        at = np.arange(start, min(start + rows, length))
        yield read(at).astype(model.dtype).astype(np.float64)


def _largest_sum(symbols: np.ndarray, positions: np.ndarray) -> float:
    """Upper bound on |e + p| over all pairs, from |e|² + |p|² + 2 e·p.

    Every term is an inner product of d terms and there are two more additions, so the
    computed square is off by at most γ_{d+2} (|e| + |p|)².
    """
    scale = np.frexp(max(np.max(np.abs(symbols)), np.max(np.abs(positions))))[1]
    e, p = np.ldexp(symbols, -scale), np.ldexp(positions, -scale)
    of_e, of_p = (np.einsum("ij,ij->i", x, x) for x in (e, p))
    largest = float(np.max(of_e + of_p[:, None] + 2 * (p @ e.T), initial=0.0))
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

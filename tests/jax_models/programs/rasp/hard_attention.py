"""Average-hard transformers once more, eagerly: the oracle of compiled programs.

Written from the text of the model format, over batches of strings [c, n], in two
arithmetics: rational numbers, where scores are equal or not, and float64 with score
cells. Only what compiled programs have: dot products, no layer norm, ReLU.
"""

import dataclasses
from fractions import Fraction

import jax
import numpy as np

from jax_models.model.transformer import encode_positions
from tests.jax_models.programs.rasp.test_evaluate import SEES


@dataclasses.dataclass
class Run:
    """What a model said, and how its heads that are not uniform decided."""

    logits: np.ndarray  # [c, n, classes]
    least_gap: Fraction | float = np.inf  # best score less the next, over all rows
    most_tied: int = 0  # keys of the best score
    coordinates: np.ndarray = dataclasses.field(  # largest magnitude of each [d]
        default_factory=lambda: np.zeros(1)
    )


def rational(array) -> np.ndarray:
    """The numbers of an array, as rationals: integers where they are, for speed."""

    def convert(number):
        number = Fraction(number)
        return number.numerator if number.denominator == 1 else number

    return np.asarray(np.frompyfunc(convert, 1, 1)(np.asarray(array)), object)


def positions(model, length, exact):
    """The encoding [n, d]: in rationals 1/i is not rounded."""
    if not exact:
        return encode_positions(model, length)
    table = rational(np.zeros((length, model.width)))
    for term in model.position.terms if model.position else ():
        for j in range(length):
            p = Fraction(j + int(term.offset))
            value = p ** int(term.position_power) * length ** int(term.length_power)
            table[j, term.coordinate] += int(term.scale) * value
    return table


def run(model, strings, *, exact=False, dtype=np.float64):
    """Logits of every string at every position, with the heads' gaps."""
    number = rational if exact else (lambda array: np.asarray(array, dtype))
    model = jax.tree.map(np.asarray, model)
    strings = np.atleast_2d(strings)
    y = number(model.embedding)[strings]
    y = y + number(positions(model, strings.shape[1], exact))
    found = Run(logits=np.zeros(0))
    for layer in model.layers:
        y = y + attend(layer.attention, y, number, exact, found)
        block = layer.feed_forward
        hidden = y @ number(block.w1).T + number(block.b1)
        hidden = np.where(hidden > 0, hidden, 0 * hidden)
        y = y + hidden @ number(block.w2).T + number(block.b2)
        size = np.abs(y).max(axis=(0, 1)).astype(np.float64)
        found.coordinates = np.maximum(found.coordinates, size)
    found.logits = y @ number(model.readout.weight).T + number(model.readout.bias)
    return found


def attend(attention, y, number, exact, found):
    """What the heads add to the rows [c, n, d]."""
    assert attention.score == "dot_product"
    steps, length = range(y.shape[1]), y.shape[1]

    def project(name):
        rows = np.einsum("hed,cnd->hcne", number(getattr(attention, name)), y)
        bias = getattr(attention, f"{name}_bias")
        return rows if bias is None else rows + number(bias)[:, None, None]

    queries, keys, values = project("query"), project("key"), project("value")
    seen = np.array([[SEES[attention.mask](i, j) for j in steps] for i in steps])
    scores = np.einsum("hcie,hcje->hcij", queries, keys)
    cells = scores if exact else np.round(scores / attention.weighting.tie_resolution)
    cells = np.where(seen, cells, -np.inf)
    members = seen & (cells == cells.max(axis=-1, keepdims=True))
    tied = members.sum(axis=-1)
    decides = attention.query.any(axis=(1, 2))  # the others are uniform
    if attention.query_bias is not None:
        decides = decides | attention.query_bias.any(axis=1)
    if decides.any():
        found.most_tied = max(found.most_tied, int(tied[decides].max()))
        top = np.where(seen, scores, -np.inf).max(axis=-1, keepdims=True)
        gaps = np.where(seen & ~members, top - scores, np.inf)[decides]
        found.least_gap = min(found.least_gap, gaps.min())
    total = np.einsum("hcij,hcjv->hciv", number(members), values)
    shares = [Fraction(1, max(int(one), 1)) for one in tied.ravel()]
    heads = total * number(np.reshape(shares, (*tied.shape, 1)))
    side_by_side = heads.transpose(1, 2, 0, 3).reshape(len(y), length, -1)
    return side_by_side @ number(attention.output).T

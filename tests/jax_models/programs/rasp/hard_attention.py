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
from tests.jax_models.programs.rasp.naive import SEES


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
    out, length = 0, y.shape[1]
    resolution = attention.weighting.tie_resolution
    assert attention.score == "dot_product"
    for head in range(attention.num_heads):

        def project(name, head=head):
            weight = number(getattr(attention, name)[head])
            bias = getattr(attention, f"{name}_bias")
            row = y @ weight.T
            return row if bias is None else row + number(bias[head])

        queries, keys, values = project("query"), project("key"), project("value")
        biases = attention.query_bias
        uniform = not np.any(attention.query[head]) and (
            biases is None or not np.any(biases[head])
        )
        heads = 0 * values
        for i in range(length):
            seen = np.flatnonzero([SEES[attention.mask](i, j) for j in range(length)])
            if not seen.size:
                continue
            scores = (queries[:, i : i + 1] * keys[:, seen]).sum(axis=2)
            cells = scores if exact else np.round(scores / resolution)
            best = cells.max(axis=1, keepdims=True)
            members = cells == best
            tied = members.sum(axis=1)
            if not uniform:
                found.most_tied = max(found.most_tied, int(tied.max()))
                others = scores[~members]
                if others.size:
                    top = np.broadcast_to(
                        scores.max(axis=1, keepdims=True), cells.shape
                    )
                    gap = (top[~members] - others).min()
                    found.least_gap = min(found.least_gap, gap)
            total = (values[:, seen] * members[:, :, None]).sum(axis=1)
            shares = [Fraction(1, int(one)) for one in tied] if exact else 1 / tied
            heads[:, i] = total * number(shares)[:, None]
        width = values.shape[2]
        columns = attention.output[:, head * width : (head + 1) * width]
        out = out + heads @ number(columns).T
    return out

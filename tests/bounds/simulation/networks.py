"""Random average-hard networks, many at once, and both attentions as plainly as possible.

The oracle of the simulation tests: the theorems' layers in NumPy, float64, all inputs of
all networks in one array. M networks, S inputs, n positions, d width; n x n without
shame.
"""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np

import jax_models as jm
from jax_models.model.attention import Attention
from jax_models.model.layer import FeedForward, Layer
from tests.bounds.simulation.closed_form.rows import softmax

WIDTH, HIDDEN, LENGTH = 3, 4, 5
INPUTS = np.array(list(itertools.product((0, 1), repeat=LENGTH)))
# Scores of these networks are about 1 and rounded near 1e-15: ties are not missed, and
# the gaps drawn are far wider.
TIE = 1e-9


@dataclasses.dataclass(frozen=True)
class Networks:
    """Weights of M networks of L layers; see `draw_networks`."""

    embedding: np.ndarray  # [M, 2, d]
    position: np.ndarray  # [M, n, d]
    layers: tuple[dict[str, np.ndarray], ...]  # each [M, ...]

    @property
    def count(self):
        return len(self.embedding)

    def model(self, index, weighting=None):
        """Returns one of them as a model."""

        def array(values):
            return jnp.asarray(values[index], jnp.float64)

        layers = tuple(
            Layer(
                Attention(
                    query=array(w["q"])[None],
                    key=array(w["k"])[None],
                    value=array(w["v"])[None],
                    output=jnp.eye(WIDTH),
                    weighting=weighting or jm.AverageHardmax(),
                    score="dot_product",
                ),
                FeedForward(
                    array(w["w1"]), array(w["b1"]), array(w["w2"]), array(w["b2"])
                ),
            )
            for w in self.layers
        )
        return jm.Transformer(
            array(self.embedding), layers, jm.PositionTable(array(self.position))
        )

    def run(self, weights):
        """Returns the final activations [M, S, n, d] under weights of (scores, layer)."""
        m = np.arange(self.count)[:, None, None]
        rows = self.embedding[m, INPUTS[None]] + self.position[:, None]
        for depth, w in enumerate(self.layers):
            query, key, value = (
                np.einsum("mod,msnd->msno", w[name], rows) for name in "qkv"
            )
            alpha = weights(np.einsum("msie,msje->msij", query, key), depth)
            rows = rows + np.einsum("msij,msjd->msid", alpha, value)
            hidden = np.einsum("mfd,msnd->msnf", w["w1"], rows) + _rowwise(w["b1"])
            written = np.einsum("mdf,msnf->msnd", w["w2"], np.maximum(hidden, 0))
            rows = rows + written + _rowwise(w["b2"])
        return rows

    def hard(self):
        return self.run(lambda scores, depth: average_hard(scores))

    def soft(self, temperatures):
        """Returns the same with softmax, one temperature per network [M]."""
        tau = np.asarray(temperatures)[:, None, None, None]
        return self.run(lambda scores, depth: softmax(scores / tau))

    def errors(self, temperatures):
        """Returns the largest difference of the two over all inputs [M]."""
        return np.abs(self.soft(temperatures) - self.hard()).max(axis=(1, 2, 3))


def _rowwise(bias):
    return bias[:, None, None]


def average_hard(scores):
    best = scores >= scores.max(axis=-1, keepdims=True) - TIE
    return best / best.sum(axis=-1, keepdims=True)


def draw_networks(seed, count, layers, *, ties):
    """Returns random networks; a third of the layers uniform, the first never.

    With ties embeddings, positions, queries and keys are small integers, so that scores
    of the first layer tie exactly; without them all are Gaussian.
    """
    rng = np.random.default_rng(seed)

    def gaussian(*shape):
        return rng.normal(0, 0.6, (count, *shape))

    def selective(*shape):
        return (
            rng.integers(-1, 2, (count, *shape)).astype(float)
            if ties
            else gaussian(*shape)
        )

    built = []
    for depth in range(layers):
        kept = (rng.random((count, 1, 1)) > 1 / 3) | (depth == 0)
        built.append(
            {
                "q": selective(WIDTH, WIDTH) * kept,
                "k": selective(WIDTH, WIDTH) * kept,
                "v": gaussian(WIDTH, WIDTH),
                "w1": gaussian(HIDDEN, WIDTH),
                "b1": gaussian(HIDDEN),
                "w2": gaussian(WIDTH, HIDDEN),
                "b2": gaussian(WIDTH),
            }
        )
    return Networks(selective(2, WIDTH), selective(LENGTH, WIDTH), tuple(built))


def draw_model(draw, layers, keys, units, activation="relu", **fields):
    """A model of `draw_layer`s for two symbols at up to six positions."""
    given = draw, keys, units, activation
    drawn = tuple(draw_layer(*given, **fields) for _ in range(layers))
    return jm.Transformer(draw(2, 4), drawn, jm.PositionTable(draw(6, 4)))


def draw_layer(draw, keys, units, activation, **fields):
    """A layer of two average-hard heads and width 4, every tensor by `draw(*shape)`."""
    attention = Attention(
        query=draw(2, keys, 4),
        key=draw(2, keys, 4),
        value=draw(2, 2, 4),
        output=draw(4, 4),
        query_bias=draw(2, keys),
        key_bias=draw(2, keys),
        value_bias=draw(2, 2),
        output_bias=draw(4),
        weighting=jm.AverageHardmax(),
        **fields,
    )
    block = draw(units, 4), draw(units), draw(4, units), draw(4)
    return Layer(attention, FeedForward(*block, activation))


def make_head(query, key, value, *, query_bias, key_bias=None, cell=None, **options):
    """One average-hard head with the identity as its output matrix."""
    value = jnp.asarray(value, jnp.float64)
    return Attention(
        query=jnp.asarray(query, jnp.float64)[None],
        key=jnp.asarray(key, jnp.float64)[None],
        value=value[None],
        output=jnp.eye(len(value)),
        query_bias=jnp.asarray(query_bias, jnp.float64)[None],
        key_bias=None if key_bias is None else jnp.asarray(key_bias, jnp.float64)[None],
        weighting=jm.AverageHardmax(cell),
        **options,
    )


def of_heads(embedding, *attentions):
    """A model of such layers, with blocks that write nothing and no positions; n <= 4."""
    embedding = jnp.asarray(embedding, jnp.float64)
    width = embedding.shape[1]
    one, zero = jnp.ones((1, width)), jnp.zeros(width)
    silent = FeedForward(one, jnp.zeros(1), 0 * one.T, zero)
    layers = tuple(Layer(attention, silent) for attention in attentions)
    return jm.Transformer(embedding, layers, jm.PositionTable(jnp.zeros((4, width))))


def edit_heads(measure, change):
    """The measure of a hard model with every head changed by a function."""
    layers = (
        dataclasses.replace(layer, heads=tuple(map(change, layer.heads)))
        for layer in measure.layers
    )
    return dataclasses.replace(measure, layers=tuple(layers))


def wide_cell():
    """Scores 0 and 1/4, which tie in one cell."""
    cell = {"cell": 4.0, "score": "dot_product"}
    return of_heads(
        [[0], [0.25]], make_head([[0]], [[1]], [[1]], query_bias=[1], **cell)
    )

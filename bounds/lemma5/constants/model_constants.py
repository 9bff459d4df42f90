"""The constants of a whole model at one length: everything the closed forms need."""

import dataclasses
import math

from bounds.lemma5.closed_form import LayerConstants, growth_constant, largest_weight
from bounds.lemma5.constants.embeddings import EmbeddingNorms, read_embeddings
from bounds.lemma5.constants.head import HeadConstants, read_head
from bounds.lemma5.constants.layer import read_layer
from bounds.lemma5.constants.row_form import NormConstants, read_norm
from bounds.numbers.interval import exp, interval, log, maximum, upper
from bounds.readings.rules import unsupported_model
from jax_models import InputError, Transformer
from jax_models.arguments import expect_integer
from jax_models.brief import BriefRepr
from jax_models.format.model_check import check_model
from jax_models.model.mask import SIGHTS


@dataclasses.dataclass(frozen=True, repr=False)
class ModelConstants(BriefRepr):
    """Upper bounds that hold for all inputs of one length; layer k is `layers[k - 1]`.

    Attributes:
        length: n.
        embedding: F_0, D and the norms that the printed F starts from.
        layers: Constants of layers 1 … L at the temperature of this length.
        masks: One per layer.
        norms: F_1 … F_L, of the activations after each layer.
        final: Of the final LayerNorm; None where there is none.
        readout: Of the read-out, or another head; None where there is none.
    """

    length: int
    embedding: EmbeddingNorms
    layers: tuple[LayerConstants, ...]
    masks: tuple[str, ...]
    norms: tuple[float, ...]
    final: NormConstants | None
    readout: HeadConstants | None

    @property
    def is_masked(self) -> bool:
        """Whether some row of some layer does not see every position."""
        return not all(SIGHTS[mask].everything for mask in self.masks)

    def attended_norm(self, layer: int) -> float:
        """F: bound on what the attention of layers 1 … k reads."""
        return max(x.norm for x in self.layers[:layer])

    def half_oscillation(self, layer: int) -> float:
        """A: half the largest difference of two logits of a row, layers 1 … k; nats."""
        return upper(maximum(*map(_half_oscillation, self.layers[:layer])))

    def log10_half_weight(self, layer: int) -> float:
        """log10(1 + e^{2A}): the n at which the bound on a weight of a row of n is 1/2.

        A is that of this length, layers 1 … k. In shorter rows the bound is larger and
        says next to nothing; in longer ones it falls like 1/n.
        """
        half = interval(self.half_oscillation(layer))
        return upper(log(1 + exp(2 * half)) / log(interval(10)))

    def attention_weight(self, layer: int, query: int) -> float:
        """ᾱ: the largest weight the query row can give a position, layers 1 … k."""
        weights = [0.0]
        for constants, mask in zip(
            self.layers[:layer], self.masks[:layer], strict=True
        ):
            if visible := SIGHTS[mask].count(query, self.length):
                half = upper(_half_oscillation(constants))
                weights.append(largest_weight(half, visible).value)
        return max(weights)

    def growth(self) -> float | None:
        """C_fact; None where the embeddings vanish and biases do not.

        Covers what leaves each layer and what its attention reads, which under pre-norm
        is not a layer's output.
        """
        norms = [
            max(out, layer.norm)
            for out, layer in zip(self.norms, self.layers, strict=True)
        ]
        if self.embedding.separate == 0 and max(norms) > 0:
            return None
        return growth_constant(self.embedding.separate, norms)


def read_constants(model: Transformer, length: int) -> ModelConstants:
    """Read every constant of the closed forms off a model, as rigorous upper bounds.

    Spectral norms are computed singular values, enlarged by what rounding can hide
    (`bounds.numbers.spectral`); everything made of them is rounded upwards.

    Args:
        model: A transformer with softmax attention in every layer.
        length: n >= 2; temperatures and position encodings may depend on it.

    Returns:
        The constants.

    Raises:
        InputError: n is below 2 or beyond the position table; there is no layer; a
            weighting is hard, a LayerNorm has ε = 0 or a temperature is zero as a
            float, so that no constant exists.

    Source:
        Hahn 2020, Lemma 5 and its proof: the constants F, A, C_att, L_fact, made
        explicit.
    """
    model = check_model(model)
    length = expect_integer("length n", length, most=math.inf)
    if length < 2:
        raise InputError(
            f"length n = {length}; the closed forms compare two positions, so they "
            "need n >= 2"
        )
    if not model.layers:
        raise InputError("the model has no layers; the closed forms need at least one")
    for k, layer in enumerate(model.layers):
        if layer.attention.weighting.hard:
            raise InputError(
                f"layers.{k}: the weighting {layer.attention.weighting.name} is hard: "
                "a winner changes by a jump, so there is no Lipschitz constant and "
                "Lemma 5 does not apply; re-weight the model with softmax"
            )
    if lack := unsupported_model(model):
        raise InputError(f"the closed forms cannot follow the model: {lack}")
    embedding = read_embeddings(model, length)
    norm, layers, norms = embedding.norm, [], []
    for k, layer in enumerate(model.layers):
        constants, norm = read_layer(layer, f"layers.{k}", norm, length)
        layers.append(constants)
        norms.append(norm)
    final = model.final_norm
    head = None if model.readout is None else read_head(model)
    return ModelConstants(
        length=length,
        embedding=embedding,
        layers=tuple(layers),
        masks=tuple(layer.attention.mask for layer in model.layers),
        norms=tuple(norms),
        final=None if final is None else read_norm(final, "final_norm"),
        readout=head,
    )


def _half_oscillation(layer: LayerConstants):
    norm = interval(layer.norm)
    return maximum(*(head.score.half_oscillation(norm) for head in layer.heads))

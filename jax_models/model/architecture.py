"""Parts of a transformer beyond its sizes, weightings, masks and positions."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jax_models.arguments import choose_name, expect_integer, expect_kind
from jax_models.errors import InputError
from jax_models.model.distance import DistanceBias
from jax_models.model.layer import COMBINATIONS
from jax_models.model.rotary import Rotary
from jax_models.model.rows import ACTIVATIONS, NORMS

HEADS = ("linear", "tied", "masked_lm", "pooler", "classifier")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Architecture:
    """Norms, blocks, attention variants and head of a random transformer.

    Args:
        norm: which norm stands where `layer_norm` places one, one of `NORMS`.
        layer_norm_epsilon: added to the variance.
        activation: one of `ACTIVATIONS`.
        gated: whether the feed-forward blocks have a gate.
        combine: residual, parallel (with norms before or none) or concat (without norms).
        biases: whether attention has biases (the feed-forward block always has them).
        key_value_heads: how many heads have keys and values of their own, a divisor of
            the number of heads; groups of the others share them. None for all.
        query_key_norm: which norm queries and keys of every head have; None for none.
        distance_bias: added to scores by the distance; None for nothing.
        rotary: turns queries and keys by their positions; None for nothing.
        window: rows see positions that are less than this away; None for all.
        tie_resolution: width of a score cell of hard weightings.
        same_layers: for each layer, which of the first ones it is, as (0, 1, 0, 0); by
            default each is its own.
        max_length: rows of a position table.
        entry_norm: whether a norm stands before the first layer.
        d_embedding: width of embeddings and positions, which are then projected to
            d_model; None for d_model itself.
        final_norm: whether a last norm follows.
        head: linear, the read-out; tied, the embedding; masked_lm, a map, the activation,
            a norm and the embedding; pooler, a map and tanh; classifier, both and a
            map to the classes.
        num_classes: classes of a read-out; None for no read-out.

    Raises:
        InputError: for an unknown name, a size below 1, a flag that is no boolean.
    """

    norm: str = "layer_norm"
    layer_norm_epsilon: float = 1e-5
    activation: str = "relu"
    gated: bool = False
    combine: str = "residual"
    biases: bool = True
    key_value_heads: int | None = None
    query_key_norm: str | None = None
    distance_bias: DistanceBias | None = None
    rotary: Rotary | None = None
    window: int | None = None
    tie_resolution: float | None = None
    same_layers: Sequence[int] | None = None
    max_length: int = 512
    entry_norm: bool = False
    d_embedding: int | None = None
    final_norm: bool = False
    head: str = "linear"
    num_classes: int | None = None

    def __post_init__(self) -> None:
        expect_integer("max_length", self.max_length, 1)
        for name in ("num_classes", "window", "key_value_heads", "d_embedding"):
            if getattr(self, name) is not None:
                expect_integer(name, getattr(self, name), 1)
        for name in ("final_norm", "entry_norm", "biases", "gated"):
            expect_kind(name, getattr(self, name), bool | np.bool_, "True or False")
        bias = "an Alibi or DistanceBuckets, or None"
        expect_kind("distance_bias", self.distance_bias, DistanceBias | None, bias)
        expect_kind("rotary", self.rotary, Rotary | None, "a Rotary, or None")
        choose_name("norm", self.norm, tuple(NORMS))
        if self.query_key_norm is not None:
            choose_name("query_key_norm", self.query_key_norm, tuple(NORMS))
        choose_name("activation", self.activation, tuple(ACTIVATIONS))
        choose_name("combine", self.combine, COMBINATIONS)
        choose_name("head", self.head, HEADS)
        if self.head == "classifier" and self.num_classes is None:
            raise InputError(
                'head="classifier" needs num_classes, how many classes it has'
            )

"""Random models of keywords as tables of cases hold them, flat; the least of them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm
from jax_models.model.entry import Entry
from jax_models.model.rows import ACTIVATIONS, Affine

SMALL = {"num_layers": 1, "num_heads": 1, "d_model": 4, "d_ff": 4, "vocab_size": 2}
FIELDS = {field.name for field in dataclasses.fields(jm.Architecture)}
# Parts that are not drawn with a model: a norm and a projection of its embedding, a head
# other than its read-out, and the layer that stands at each place.
ENDS = ("entry_norm", "d_embedding", "head", "same_layers")
HEADS = ("linear", "tied", "masked_lm", "pooler", "classifier")


def with_architecture(**options):
    """Keywords of `random_transformer`, those of its architecture gathered in it."""
    parts = {name: options.pop(name) for name in FIELDS & options.keys()}
    return options | ({"architecture": jm.Architecture(**parts)} if parts else {})


def random_model(seed, **options):
    """A random model of flat keywords, those in `ENDS` too."""
    ends = {name: options.pop(name) for name in ENDS if name in options}
    model = jm.random_transformer(jax.random.key(seed), **with_architecture(**options))
    return with_ends(model, options, **ends) if ends else model


def with_ends(
    model, options, entry_norm=False, d_embedding=None, head="linear", same_layers=None
):
    rng, d, parts = np.random.default_rng(0), model.width, {}

    def draw(*shape):
        drawn = rng.normal(size=shape) / shape[-1] ** 0.5
        return jnp.asarray(drawn, model.dtype)

    def norm(width):
        return jm.LayerNorm(1 + draw(width), draw(width))

    if same_layers is not None:
        parts["layers"] = tuple(model.layers[at] for at in same_layers)
    if entry_norm or d_embedding:
        narrow = d_embedding or d
        parts["embedding"] = model.embedding[:, :narrow]
        bias = draw(d) if options.get("biases", True) else None
        parts["entry"] = Entry(
            norm(narrow) if entry_norm else None,
            *((draw(d, narrow), bias) if d_embedding else ()),
        )
    dense, tied = Affine(draw(d, d), draw(d)), (draw(model.vocab_size), True)
    if head == "tied":
        parts["readout"] = jm.Head((), *tied)
    elif head == "masked_lm":
        bend = ACTIVATIONS[options.get("activation", "relu")]
        parts["readout"] = jm.Head((dense, bend, norm(d)), *tied)
    elif head != "linear":
        count = options.get("num_classes")
        last = [Affine(draw(count, d), draw(count))] if head == "classifier" else []
        parts["readout"] = jm.Head((dense, ACTIVATIONS["tanh"], *last))
    return dataclasses.replace(model, **parts)


def small_model(seed=0, **changed):
    """A random model of one layer and one head, but for what is changed."""
    return random_model(seed, **{**SMALL, **changed})


def with_attention(model, parts):
    """The model with other parts of every attention: a dict, or a function of each."""

    def change(layer):
        attention = layer.attention
        more = parts(attention) if callable(parts) else parts
        attention = dataclasses.replace(attention, **more)
        return dataclasses.replace(layer, attention=attention)

    return dataclasses.replace(model, layers=tuple(map(change, model.layers)))

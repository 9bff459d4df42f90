"""Random models of keywords as tables of cases hold them, flat; the least of them."""

import dataclasses

import jax

import jax_models as jm

SMALL = {"num_layers": 1, "num_heads": 1, "d_model": 4, "d_ff": 4, "vocab_size": 2}
FIELDS = {field.name for field in dataclasses.fields(jm.Architecture)}


def with_architecture(**options):
    """Keywords of `random_transformer`, those of its architecture gathered in it."""
    parts = {name: options.pop(name) for name in FIELDS & options.keys()}
    return options | ({"architecture": jm.Architecture(**parts)} if parts else {})


def small_model(seed=0, **changed):
    """A random model of one layer and one head, but for what is changed."""
    options = with_architecture(**{**SMALL, **changed})
    return jm.random_transformer(jax.random.key(seed), **options)


def with_attention(model, parts):
    """The model with other parts of every attention: a dict, or a function of each."""

    def change(layer):
        attention = layer.attention
        more = parts(attention) if callable(parts) else parts
        attention = dataclasses.replace(attention, **more)
        return dataclasses.replace(layer, attention=attention)

    return dataclasses.replace(model, layers=tuple(map(change, model.layers)))

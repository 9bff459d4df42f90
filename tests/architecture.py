"""Keywords of random models as tables of cases hold them: flat."""

import dataclasses

import jax_models as jm

FIELDS = {field.name for field in dataclasses.fields(jm.Architecture)}


def with_architecture(**options):
    """Keywords of `random_transformer`, those of its architecture gathered in it."""
    parts = {name: options.pop(name) for name in FIELDS & options.keys()}
    return options | ({"architecture": jm.Architecture(**parts)} if parts else {})

"""Frozen dataclasses as pytrees, distinct classes distinct.

`jax.tree_util.register_dataclass` compares two trees by their fields alone (seen in JAX
0.10 and 0.11): a leftmost-hard and an average-hard weighting, which have the same
fields, then count as one structure, and a compiled function may be taken for the other.
`register` puts the class itself into the structure.
"""

import dataclasses
from typing import Any, TypeVar

import jax
import numpy as np

Class = TypeVar("Class", bound=type)


def register(cls: Class) -> Class:
    """Registers a dataclass as a pytree and returns it.

    Fields with metadata `static=True` belong to the structure, all others are children.
    """
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
    static = tuple(f.name for f in fields if f.metadata.get("static"))
    data = tuple(f.name for f in fields if not f.metadata.get("static"))
    keys = tuple(jax.tree_util.GetAttrKey(name) for name in data)

    def structure(tree: Any) -> tuple[Any, ...]:
        return (cls, *(getattr(tree, name) for name in static))

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(tree, name) for name in data), structure(tree)

    def flatten_with_keys(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children = tuple(getattr(tree, name) for name in data)
        return tuple(zip(keys, children, strict=True)), structure(tree)

    def unflatten(aux: tuple[Any, ...], children: Any) -> Any:
        tree = object.__new__(cls)
        for name, value in zip((*data, *static), (*children, *aux[1:]), strict=True):
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(
        cls, flatten_with_keys, unflatten, flatten_func=flatten
    )
    return cls


def in_bytes(tree: Any) -> bytes:
    """Returns a pytree of arrays and numbers byte by byte, its structure included.

    Two trees with the same bytes are the same question: digests are made of it.
    """
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves]
    shapes = [(x.shape, x.dtype.name) for x in arrays]
    return repr((structure, shapes)).encode() + b"".join(x.tobytes() for x in arrays)

"""Frozen dataclasses as pytrees, distinct classes distinct.

`jax.tree_util.register_dataclass` compares two trees by their fields alone (seen in JAX
0.10 and 0.11): a leftmost-hard and an average-hard weighting, which have the same
fields, then count as one structure, and a compiled function may be taken for the other.
`register` puts the class itself into the structure.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import jax
import numpy as np

Class = TypeVar("Class", bound=type)


def register(cls: Class) -> Class:
    """Registers a dataclass as a pytree and returns it.

    Fields with metadata `static=True` belong to the structure, all others are children. Of
    a field with `shared=True`, a tuple, an object that stands there several times is one
    child, and stays one object: which entries are the same belongs to the structure. A
    field with `late=True`, static or not, belongs to the pytree only where it is not None,
    so that stored digests of structures hold as such fields come.
    """
    fields: tuple[dataclasses.Field[Any], ...] = dataclasses.fields(cls)
    late = tuple(f.name for f in fields if f.metadata.get("late"))
    static = tuple(
        f.name for f in fields if f.metadata.get("static") and f.name not in late
    )
    every = tuple(f.name for f in fields if not f.metadata.get("static"))
    data = tuple(name for name in every if name not in late)
    late_data = tuple(name for name in every if name in late)
    shared = tuple(f.name for f in fields if f.metadata.get("shared"))

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        aux = (cls, *(getattr(tree, name) for name in static))
        children = {name: getattr(tree, name) for name in data}
        for name in shared:
            if found := _same_entries(children[name]):
                children[name], of = found
                aux += ((name, of),)
        for name in late:
            value = getattr(tree, name)
            if value is not None and name in late_data:
                children[name], aux = value, (*aux, (name, True))
            elif value is not None:
                aux += ((name, value),)
        return tuple(children.values()), aux

    def flatten_with_keys(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, aux = flatten(tree)
        there = {name for name, _ in aux[1 + len(static) :]}
        names = (*data, *(name for name in late_data if name in there))
        keys = map(jax.tree_util.GetAttrKey, names)
        return tuple(zip(keys, children, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], children: Any) -> Any:
        tree, (_, *said) = object.__new__(cls), aux
        rest = iter(children)
        values = {name: next(rest) for name in data}
        values |= dict(zip(static, said[: len(static)], strict=True))
        values |= dict.fromkeys(late)
        for name, of in said[len(static) :]:
            if name in late_data:
                values[name] = next(rest)
            elif name in late:
                values[name] = of
            elif isinstance(values[name], tuple):  # JAX puts its own marks there too
                values[name] = tuple(values[name][at] for at in of)
        for name, value in values.items():
            object.__setattr__(tree, name, value)
        return tree

    jax.tree_util.register_pytree_with_keys(
        cls, flatten_with_keys, unflatten, flatten_func=flatten
    )
    return cls


def _same_entries(entries: Any) -> tuple[tuple[Any, ...], tuple[int, ...]] | None:
    """The objects in a tuple and which of them stands where; None if none stands twice."""
    if not isinstance(entries, tuple) or not all(
        map(dataclasses.is_dataclass, entries)
    ):
        return None
    place: dict[int, int] = {}
    of = tuple(place.setdefault(id(one), len(place)) for one in entries)
    if len(place) == len(entries):
        return None
    return tuple(entries[of.index(at)] for at in range(len(place))), of


def map_once(function: Callable[[Any], Any], entries: Iterable[Any]) -> tuple[Any, ...]:
    """Results of a function on entries, called once for an object that stands there often."""
    entries, made = tuple(entries), {}
    for one in entries:
        if id(one) not in made:
            made[id(one)] = function(one)
    return tuple(made[id(one)] for one in entries)


def in_bytes(tree: Any) -> bytes:
    """Returns a pytree of arrays and numbers byte by byte, its structure included.

    Two trees with the same bytes are the same question: digests are made of these bytes.
    """
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves]
    shapes = [(x.shape, x.dtype.name) for x in arrays]
    return repr((structure, shapes)).encode() + b"".join(x.tobytes() for x in arrays)

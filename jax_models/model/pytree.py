"""Frozen dataclasses as pytrees whose structures differ if their classes do."""

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, dataclass_transform

import jax
import numpy as np

Class = TypeVar("Class", bound=type)


def static(*, default: Any = dataclasses.MISSING, kw_only: bool = False) -> Any:
    """Dataclass field that belongs to a pytree's static structure, not to its leaves."""
    return dataclasses.field(
        default=default, kw_only=kw_only, metadata={"static": True}
    )


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def pytree(cls: Class) -> Class:
    """Makes a class a frozen dataclass and a pytree, and returns it."""
    fields = dataclasses.fields(cls := dataclasses.dataclass(frozen=True)(cls))
    # Fields made by `static` belong to the structure, all others are children.
    static = tuple(f.name for f in fields if f.metadata.get("static"))
    data = tuple(f.name for f in fields if not f.metadata.get("static"))
    shared = tuple(f.name for f in fields if f.metadata.get("shared"))

    def divide(tree: Any) -> tuple[dict[str, Any], tuple[Any, ...]]:
        # The class belongs to the structure. `jax.tree_util.register_dataclass` compares two
        # trees by their fields alone (seen in JAX 0.10 and 0.11): a leftmost-hard and an
        # average-hard weighting, which have the same fields, then count as one structure, and
        # a compiled function may be taken for the other.
        aux = (cls, *(getattr(tree, name) for name in static))
        children = {name: getattr(tree, name) for name in data}
        # A field with `shared=True` is a tuple: if one object is several of its entries, it
        # is one child, and one object after unflattening; the structure records which are
        # equal.
        for name in shared:
            if found := _same_entries(children[name]):
                children[name], of = found
                aux += ((name, of),)
        return children, aux

    def flatten(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, aux = divide(tree)
        return tuple(children.values()), aux

    def flatten_with_keys(tree: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        children, aux = divide(tree)
        key = jax.tree_util.GetAttrKey
        return tuple((key(name), child) for name, child in children.items()), aux

    def unflatten(aux: tuple[Any, ...], children: Any) -> Any:
        # Without __init__: JAX unflattens trees of its own marks too, which no check would
        # pass.
        tree, (_, *said) = object.__new__(cls), aux
        values = dict(zip(data, children, strict=True))
        values |= dict(zip(static, said, strict=False))
        for name, of in said[len(static) :]:
            if isinstance(values[name], tuple):  # JAX puts its own marks there too
                values[name] = tuple(values[name][at] for at in of)
        vars(tree).update(values)
        return tree

    jax.tree_util.register_pytree_with_keys(
        cls, flatten_with_keys, unflatten, flatten_func=flatten
    )
    return cls


def _same_entries(entries: Any) -> tuple[tuple[Any, ...], tuple[int, ...]] | None:
    """Distinct objects of a tuple, and each entry's index in them; None if all differ."""
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
    """Tuple of `function` of each entry, called once for entries that are one object."""
    entries, made = tuple(entries), {}
    for one in entries:
        if id(one) not in made:
            made[id(one)] = function(one)
    return tuple(made[id(one)] for one in entries)


@functools.cache
def array_fields(kind: type) -> dict[str, tuple[str, bool]]:
    """Axis names of a dataclass's array fields by name, and if each may be None."""
    found: dict[str, tuple[str, bool]] = {}
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        options = typing.get_args(hints[field.name]) or (hints[field.name],)
        for axes in (x.dim_str for x in options if hasattr(x, "dim_str")):
            found[field.name] = axes, type(None) in options
    return found


def in_bytes(tree: Any) -> bytes:
    """Returns structure, shapes, types and content of a pytree as bytes for digests."""
    leaves, structure = jax.tree.flatten(tree)
    arrays = [np.asarray(leaf) for leaf in leaves]
    shapes = [(x.shape, x.dtype.name) for x in arrays]
    return repr((structure, shapes)).encode() + b"".join(x.tobytes() for x in arrays)

"""The check of a model, for all public functions that take one."""

import dataclasses
import functools
import types
import typing
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from jax_models.arguments import show
from jax_models.errors import InputError
from jax_models.format.build import build_model, name_tensors
from jax_models.format.config import describe_model
from jax_models.model.transformer import Transformer
from jax_models.weighting import Softmax

# Models that were checked and are alive, with whether x64 was enabled: JAX's arrays do not
# change, and in a loop over inputs the check would take longer than a small model.
_KNOWN: dict[tuple[int, bool], weakref.ref[Transformer]] = {}


def check_model(model: Any) -> Transformer:
    """Returns a valid model, with JAX arrays for NumPy's.

    Raises `InputError` for a model that is not valid. Traced models are not checked.
    """
    if not isinstance(model, Transformer):
        raise InputError(
            f"model is a {type(model).__name__}; expected a Transformer, such as "
            "jax_models.load returns"
        )
    # Float64 models are refused without x64: a check holds for one setting of it.
    wide = bool(jax.config.read("jax_enable_x64"))
    # An id serves again once its object is gone: the reference must be to this very model.
    if _KNOWN.get((id(model), wide), lambda: None)() is model:
        return model
    # Values of traced models are not known, and not checked.
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(model)):
        return model
    _expect_type("model", model, Transformer)
    # A model in memory is encoded and decoded as if it came from a file, so that the rules
    # are stated only in the decoder of files.
    tensors = name_tensors(model)
    config = describe_model(model, tensors)
    for entry in config["layers"]:
        if "weighting" in entry:
            entry["weighting"] = Softmax.name  # custom weightings have no name in files
    build_model(config, tensors, described=True)
    if any(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(model)):
        model = jax.tree.map(
            lambda x: jnp.asarray(x) if isinstance(x, np.ndarray) else x, model
        )
    place = id(model), wide
    _KNOWN[place] = weakref.ref(model, lambda _: _KNOWN.pop(place))
    return model


_hints = functools.cache(typing.get_type_hints)


def _expect_type(where: str, value: Any, hint: Any) -> None:
    """Raises `InputError` if a value or nested field is not of the annotated type."""
    unions = (types.UnionType, typing.Union)
    options = typing.get_args(hint) if typing.get_origin(hint) in unions else (hint,)
    kinds = [typing.get_origin(option) or option for option in options]
    # `build_model` checks shapes, and names the tensor.
    kinds = [getattr(kind, "array_type", kind) for kind in kinds]
    if typing.Literal in kinds:
        return  # `build_model` checks the names
    # NumPy's numbers and arrays serve too: `check_model` makes JAX arrays of these.
    also = {Array: (np.ndarray,), float: (int, np.number), int: (np.integer,)}
    allowed = [kind for one in kinds for kind in (one, *also.get(one, ()))]
    if not isinstance(value, tuple(allowed)):
        names = " or ".join(getattr(kind, "__name__", "None") for kind in kinds)
        raise InputError(f"{where} = {show(value)}; expected {names}")
    if isinstance(value, tuple):
        (entry, _), *_ = [typing.get_args(x) for x in options if typing.get_args(x)]
        for at, one in enumerate(value):
            _expect_type(f"{where}[{at}]", one, entry)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            hint = _hints(type(value))[field.name]
            if hint is not str:  # `build_model` checks strings
                _expect_type(f"{where}.{field.name}", getattr(value, field.name), hint)

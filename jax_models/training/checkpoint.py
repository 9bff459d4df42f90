"""The state of a training run in one file, from which a killed run goes on bit by bit.

The file is a safetensors file, replaced as a whole: every array of the state under its
own name, and in the metadata the configuration of the run. A checkpoint of
another configuration is refused with the first entry that differs. A standing is the
state and record of a run after some steps.
"""

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import Shaped

from jax_models.arguments import has_file
from jax_models.atomic import write_atomically
from jax_models.errors import InputError
from jax_models.format.file import read_safetensors

MOST_SHOWN = 40  # characters of a value
FORMAT = "attention-bounds training/1"
STATE = "state"  # prefix of the names of weights and moments
HISTORY = "history."


def describe_difference(
    there: Mapping[str, Any], here: Mapping[str, Any]
) -> str | None:
    """Text on the first entry in which two configurations differ, or None."""
    for name in (*here, *(name for name in there if name not in here)):
        one, other = there.get(name), here.get(name)
        if one == other and (name in there) == (name in here):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            return describe_difference(one, other)
        return f"its {name} is {_shown(one)}, here {_shown(other)}"
    return None


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 3] + "..."


@dataclasses.dataclass(frozen=True)
class Standing:
    """State and record of a training run after some steps, as its checkpoint holds them.

    Attributes:
        step: optimiser steps done.
        state: weights and moments, a pytree of arrays.
        history: what was recorded on the way, arrays by name.
    """

    step: int
    state: Any
    history: Mapping[str, Shaped[np.ndarray, "..."]]


def save_standing(
    path: str | os.PathLike[str], standing: Standing, configuration: Mapping[str, Any]
) -> None:
    """Writes a standing and the run's configuration as a checkpoint, atomically."""
    arrays = {name: np.asarray(leaf) for name, leaf in _named(standing.state).items()}
    arrays |= {HISTORY + name: array for name, array in standing.history.items()}
    about = {
        "format": FORMAT,
        "step": standing.step,
        "configuration": configuration,
    }
    # One file for arrays and configuration: they cannot be of two runs.
    content = safetensors.numpy.save(
        {name: np.asarray(array, order="C") for name, array in arrays.items()},
        metadata={"about": json.dumps(about, sort_keys=True)},
    )
    write_atomically(path, content)


def read_standing(
    path: str | os.PathLike[str],
    # a state of the same structure, shapes and types
    like: Any,
    configuration: Mapping[str, Any],
) -> Standing | None:
    """Returns the standing that a checkpoint holds; None where there is no file."""
    path = Path(path)
    if not has_file("checkpoint", path):
        return None
    try:
        arrays, metadata = read_safetensors(path)
        about = json.loads(metadata["about"])
        found, step = about["configuration"], about["step"]
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(
            f"{path} is no readable checkpoint of a training run ({error}); delete it, "
            "or name another file"
        ) from error
    # Through JSON, as the file's has gone: tuples are lists there.
    difference = describe_difference(found, json.loads(json.dumps(configuration)))
    if about.get("format") != FORMAT:
        difference = f"its format is {about.get('format')!r}, here {FORMAT!r}"
    if difference is not None:
        raise InputError(
            f"{path} is the checkpoint of another run: {difference}; delete it "
            "(--fresh does), choose another folder, or train as before"
        )
    return Standing(
        step,
        _restored(path, arrays, like),
        {
            name.removeprefix(HISTORY): array
            for name, array in arrays.items()
            if name.startswith(HISTORY)
        },
    )


def _named(state: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {STATE + jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def _restored(
    path: Path, arrays: Mapping[str, Shaped[np.ndarray, "..."]], like: Any
) -> Any:
    """Returns the arrays of a file in the structure of the state `like`."""
    names = _named(like)
    for name, leaf in names.items():
        found = arrays.get(name)
        if found is None or (found.shape, found.dtype) != (leaf.shape, leaf.dtype):
            raise InputError(
                f"{path} has no array {name!r} of shape {leaf.shape} and type "
                f"{leaf.dtype}: it was written by another version; delete it to train "
                "again"
            )
    restored = [jnp.asarray(arrays[name]) for name in names]
    return jax.tree.unflatten(jax.tree.structure(like), restored)

"""Longest length that a model was trained on, from train.json in its folder."""

import contextlib
import warnings
from pathlib import Path

from bounds.store.output import file_sha256
from jax_models.arguments import MAX_LENGTH, expect_integer
from jax_models.errors import InputError, InputWarning
from jax_models.format.pretrained.folder import read_json


def read_trained_to(model: str) -> int | None:
    """Longest input length n that a model was trained on; None without a record."""
    path, said = Path(model), {}
    record = (path if path.is_dir() else path.parent) / "train.json"
    with contextlib.suppress(InputError):
        said = read_json(record)
    end, digest = said.get("trained_to"), said.get("model_sha256")
    if end is None:
        return None
    if digest is not None and (path.is_dir() or digest != file_sha256(path)):
        warnings.warn(
            f"{str(record)!r} is of another model, so that no trained length is known; "
            "name it as --trained_to",
            InputWarning,
            stacklevel=2,
        )
        return None
    return expect_integer(f"trained_to of {str(record)!r}", end, 1, MAX_LENGTH)

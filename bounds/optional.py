"""Packages that some outputs need and the distribution does not."""

import importlib
import importlib.util
from typing import Any

from jax_models.errors import InputError


def require_package(name: str, purpose: str) -> Any:
    """Returns a package, or say that it is missing.

    Args:
        name: As it is imported.
        purpose: What needs it, as in "a Parquet file".

    Raises:
        InputError: It is not installed.
    """
    top = name.partition(".")[0]
    if importlib.util.find_spec(top) is None:
        raise InputError(
            f"{purpose} needs the package {top}, which is not installed; install it "
            f"with: pip install {top}"
        )
    return importlib.import_module(name)


def has_package(name: str) -> bool:
    """Returns whether a package is installed."""
    return importlib.util.find_spec(name) is not None

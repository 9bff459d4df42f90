"""Asking another interpreter, which may have packages that this one lacks.

The part of a comparison that runs there is a script of its own, imports nothing of this
repository, reads its question from a NumPy archive and prints its answer as the last line,
in JSON.
"""

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jax_models import Transformer


def missing_packages(python: str, packages: str) -> str | None:
    """Returns the error of importing packages in an interpreter, or None."""
    try:
        found = subprocess.run(
            [python, "-c", f"import {packages}"],
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:
        return f"{python}: {error.strerror}"
    return None if found.returncode == 0 else last_words(found)


def package_version(python: str, package: str) -> str:
    """Returns the version of a package that an interpreter has."""
    asked = f"import {package}; print({package}.__version__)"
    command = [python, "-c", asked]
    return subprocess.run(
        command, capture_output=True, text=True, check=True
    ).stdout.strip()


def named_weights(model: Transformer) -> dict[str, Any]:
    """Returns the number of layers, and all weights by names such as "0.query"."""
    arrays: dict[str, Any] = {"num_layers": len(model.layers)}
    for number, layer in enumerate(model.layers):
        for part in (layer.attention, layer.feed_forward):
            for name, value in vars(part).items():
                if isinstance(value, jax.Array):
                    arrays[f"{number}.{name}"] = np.asarray(value)
    return arrays


def ask_peer(
    python: str, script: Path, question: Mapping[str, Any], limit: float
) -> dict[str, Any]:
    """Returns the JSON that a peer's script prints, or its failure as the entry `error`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "question.npz"
        np.savez(path, **question)
        try:
            found = subprocess.run(
                [python, str(script), str(path)],
                capture_output=True,
                text=True,
                check=False,
                timeout=limit,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"more than {limit:.0f} seconds"}
    if found.returncode:
        return {"error": last_words(found)}
    return json.loads(found.stdout.strip().splitlines()[-1])


def last_words(failed: subprocess.CompletedProcess[str]) -> str:
    """Returns the last line of a program's errors, or its exit code if there is none."""
    lines = failed.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit code {failed.returncode}"

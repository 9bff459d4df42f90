"""Provenance of results: versions, device, precision of matrix products and commit."""

import functools
import os
import platform
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from bounds.version import __version__


@functools.cache
def provenance() -> Mapping[str, Any]:
    """Origin of results computed by this process; the first call initialises JAX."""
    versions = {"attention-bounds": __version__, "python": platform.python_version()}
    for package in ("jax", "jaxlib", "numpy"):
        versions[package] = metadata.version(package)
    device = jax.devices()[0]
    return {
        "versions": versions,
        "device": f"{device.platform}: {device.device_kind}",
        # Of every product, by JAX's name, whatever `jax_default_matmul_precision` is: an
        # accelerator's default rounds float32 further.
        "matmul_precision": "highest",
        # Of the package's checkout, "-dirty" where files differ; None outside a checkout.
        "git_commit": _commit(),
    }


def _commit() -> str | None:
    """Returns the commit of the checkout that tracks this file, or None."""
    here = Path(__file__).resolve()
    # An installed copy may lie inside some other project's checkout; only a file that
    # git tracks says that the commit is ours. Optional locks are off so that asking
    # never disturbs a git command that runs at the same time.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        for arguments in (
            ["ls-files", "--error-unmatch", here.name],
            ["describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
        ):
            answer = subprocess.run(
                ["git", *arguments],
                cwd=here.parent,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None

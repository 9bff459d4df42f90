"""The CPU compiler of jaxlib 0.10.2, the newest for Python 3.11, and its wrong results.

It joins a product to a reduction of its result (`(W @ x.T).max(0)`), and where the inner
width is 3, 5, 6 or 7 the joined program shifts rows by whole blocks from row 16,384 on in
float64 and 32,768 in float32 (jax-ml/jax, issue 39103). An option that excludes reductions
from this fusion avoids the fault; it slows some programs.
"""

import functools
import os
import warnings

import jax
import numpy as np
from jaxlib import version

# Programs over at most this many rows are right.
SAFE_ROWS = 16_384
AFFECTED_VERSIONS = ("0.10.2",)
OPTION = "--xla_cpu_experimental_ynn_fusion_type"
REMEDY = f"{OPTION}=-reduce"
XLA_FLAGS = "XLA_FLAGS"


class MiscompilationWarning(UserWarning):
    """Warning that the CPU compiler of this process computes some programs wrong."""


def is_affected() -> bool:
    """Whether the installed jaxlib has the defect."""
    return version.__version__ in AFFECTED_VERSIONS


def avoid_miscompilation() -> None:
    """Adds the option that avoids the defect to XLA_FLAGS, unless it is named there."""
    # XLA reads the variable when the first backend starts, and not again.
    given = os.environ.get(XLA_FLAGS, "")
    if is_affected() and OPTION not in given:
        os.environ[XLA_FLAGS] = f"{given} {REMEDY}".strip()


def warn_of_miscompilation(length: int) -> None:
    """Warns, once per process, if `length` > `SAFE_ROWS` and the CPU compiler is faulty."""
    if length > SAFE_ROWS and is_affected() and jax.default_backend() == "cpu":
        _warn_if_unsound()


@functools.cache
def _warn_if_unsound() -> None:
    if not compiles_soundly():
        warnings.warn(
            f"jaxlib {version.__version__} computes some programs over more than "
            f"{SAFE_ROWS} rows wrong on a CPU; set {XLA_FLAGS}={REMEDY} before Python "
            "starts, or use Python 3.12 or newer with jaxlib 0.12",
            MiscompilationWarning,
            stacklevel=4,
        )


def compiles_soundly() -> bool:
    """Whether the smallest affected programs, of float64 and float32, are compiled right."""
    cpu = jax.local_devices(backend="cpu")[0]
    # The caller may be traced, or have no x64; neither must reach the programs here.
    with jax.ensure_compile_time_eval(), jax.enable_x64(True), jax.default_device(cpu):
        return all(
            _keeps_rows(np.dtype(dtype), rows)
            # The fewest rows that each type computes wrong.
            for dtype, rows in ((np.float64, SAFE_ROWS + 1), (np.float32, 32_769))
        )


def _keeps_rows(dtype: np.dtype, rows: int) -> bool:
    """Whether a product fused with a maximum returns row i's maximum, i, at place i."""
    # An inner width of 3, the smallest affected; coordinate 0 is the largest of its row.
    numbers = np.zeros((rows, 3), dtype)
    numbers[:, 0] = np.arange(rows)
    largest = jax.jit(lambda weight, x: (weight @ x.T).max(0))
    return np.array_equal(largest(np.eye(3, dtype=dtype), numbers), numbers[:, 0])

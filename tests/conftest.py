"""Precision, strictness and devices for the whole test run.

Double precision is on, and an operation that mixes float types is an error. Arrays of
different rank do mix: a bias is added to rows. The CPU is divided into eight devices, of
which all but the tests of sharding use the first.
"""

from pathlib import Path

import jax
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_num_cpu_devices", 8)


# Linux gives a process 65530 memory maps, and every compiled program takes some.
MOST_MAPS = 52_000


def forget_programs():
    """Forgets what is compiled before a worker runs out of memory maps."""
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture(scope="module", autouse=True)
def few_memory_maps_after_a_module():
    """Counts maps where that takes little of the time: a module has many tests."""
    yield
    forget_programs()


@pytest.fixture(autouse=True)
def few_memory_maps_after_a_slow_test(request):
    """A single module of slow tests compiles thousands of programs."""
    yield
    if request.node.get_closest_marker("slow") is not None:
        forget_programs()


@pytest.fixture(scope="module")
def quick_compilation():
    """Compiles without most optimisations, in half the time.

    For modules that compile many small programs and run each of them briefly. The
    precision tests compile as users do.
    """
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)

"""Precision, strictness and devices for the whole test run.

Double precision is on, and an operation that mixes float types is an error. Arrays of
different rank do mix: a bias is added to rows. The CPU is divided into eight devices, of
which all but the tests of sharding use the first.
"""

import os
from pathlib import Path

# Commands that tests start keep nothing that they compile, unless told to.
os.environ.setdefault("JAX_ENABLE_COMPILATION_CACHE", "false")
# A third of the time; `make test-all` compiles as users do.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "true")

import jax
import pytest

from tests import durations, memory

# Before anything imports the packages.
if os.environ.get("CHECK_SHAPES"):
    from tests import shapes

    shapes.check_packages("jax_models", "bounds")

from jax_models.run.kept_programs import keep_programs

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_num_cpu_devices", 8)
# A program that a test starts in another folder runs this checkout, installed or not.
_PATHS = str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, _PATHS))
# Where each operation was written is of no use here and takes an eighth of the time.
jax.config.update("jax_traceback_in_locations_limit", 0)

_PLANTED = jax.make_user_context()


def pytest_configure(config):
    config.pluginmanager.register(memory)
    config.pluginmanager.register(durations)
    # The processes of a run, and the next run, compile what takes long once.
    keep_programs(str(config.cache.mkdir("programs")))


@pytest.hookimpl(wrapper=True)
def pytest_collect_file():
    """Doctests stand in the packages: to look for them in tests takes seconds."""
    return [x for x in (yield) if type(x) is pytest.Module]


@pytest.fixture
def plant(monkeypatch):
    """Replaces a name of a module, in programs that are traced from then on."""

    def replace(module, name, value):
        monkeypatch.setattr(module, name, value)
        # Part of the key of every trace: what is compiled already stays for other tests.
        _PLANTED.set_global(object())

    yield replace
    monkeypatch.undo()
    _PLANTED.set_global(None)

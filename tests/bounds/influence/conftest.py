"""Fixtures of the influence tests."""

import jax
import pytest

from bounds.influence import partial, partial_pass


@pytest.fixture
def small_tiles(monkeypatch):
    """Partial passes in tiles of 4 rows, two at a time, with keys by quarters."""
    monkeypatch.setattr(partial, "TILE", 4)
    monkeypatch.setattr(partial, "SCORES_PER_ROW", 2**16)
    monkeypatch.setattr(partial_pass, "SHORT", 4)


@pytest.fixture
def plant(monkeypatch):
    """Replaces a name of a module, in programs that are compiled from then on."""

    def replace(module, name, value):
        monkeypatch.setattr(module, name, value)
        jax.clear_caches()

    yield replace
    monkeypatch.undo()
    jax.clear_caches()

"""Fixtures of the influence tests."""

import pytest

from bounds.influence.methods import partial


@pytest.fixture
def small_tiles(monkeypatch):
    """Partial passes in tiles of 4 rows, two at a time, with keys by quarters."""
    monkeypatch.setattr(partial, "TILE", 4)
    monkeypatch.setattr(partial, "SCORES_PER_ROW", 2**16)
    monkeypatch.setattr(partial, "SHORT", 4)

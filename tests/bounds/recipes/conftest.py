"""Fixtures of the influence tests."""

from tests.bounds.influence.conftest import small_tiles as small_tiles

"""A path for a store, and a store of three results there."""

import pytest

from tests.bounds.stores import fill


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results.sqlite"


@pytest.fixture
def filled(path):
    return fill(path)

"""Results in memory are given back as a store would."""

import math

import pytest

from bounds.store.results import ResultStore
from bounds.store.sweep import MemoryResults

CONFIG = {"command": "curve", "n": 4}


@pytest.fixture(params=["memory", "store"])
def results(request, tmp_path):
    if request.param == "memory":
        yield MemoryResults()
    else:
        with ResultStore(tmp_path / "results.sqlite") as store:
            yield store


def test_a_result_is_found_as_json_gives_it_back(results):
    assert results.find(CONFIG) is None
    assert results.seconds(CONFIG) is None
    results.record(CONFIG, {"x": (0.1, math.nan), "n": 4}, 1.5)
    assert results.find({"n": 4, "command": "curve"}) == {"x": [0.1, None], "n": 4}
    assert results.seconds(CONFIG) == 1.5
    assert results.find({**CONFIG, "n": 5}) is None


def test_a_failed_cell_has_no_result(results):
    results.record(CONFIG, {"x": 1}, 0.0)
    results.record_failure(CONFIG, "refused", 0.0)
    assert results.find(CONFIG) is None
    assert results.seconds(CONFIG) is None

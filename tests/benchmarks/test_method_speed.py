"""What a method takes, told from blocks that are spread over the input."""

from typing import Any

import numpy as np
import pytest

from benchmarks import method_speed

CONFIG: dict[str, Any] = {
    "dtype": "float64",
    "layers": 1,
    "scale": 1.0,
    "mask": "none",
    "n": 12,
    "blocks": 2,
    "seed": 0,
    "repeats": 1,
    "budget": 0.0,
    **method_speed.SIZES,
}

pytestmark = pytest.mark.usefixtures("quick_compilation")


@pytest.mark.parametrize(("count", "batch", "blocks"), [(100, 8, 2), (1001, 10, 3)])
def test_blocks_are_whole_and_lie_in_the_middle_of_their_shares(count, batch, blocks):
    """So that a cost that is linear in the position is met to half a substitution."""
    found = method_speed.spread_blocks(count, batch, blocks)
    assert found.size == batch * blocks
    np.testing.assert_array_equal(np.diff(found.reshape(blocks, batch)), 1)
    assert abs(found.mean() - (count - 1) / 2) <= 0.5
    assert found[0] >= 0
    assert found[-1] < count


def test_few_substitutions_are_all_run():
    found = method_speed.spread_blocks(15, 8, 2)
    np.testing.assert_array_equal(found, np.arange(15))


@pytest.mark.slow
def test_lumped_runs_all_and_is_told_of_no_other_length():
    config = {**CONFIG, "method": "lumped", "position": None}
    row = method_speed.measure(config)
    assert (row["timed"], row["substitutions"]) == (11, 11)
    assert row["all_seconds"] == row["method_seconds"]
    assert "far_seconds" not in row
    assert "lumped of 11" in method_speed.show(config, row)


@pytest.mark.slow
@pytest.mark.parametrize("mask", ["none", "future"])
def test_all_are_as_many_times_the_blocks_that_are_run(mask, monkeypatch):
    monkeypatch.setattr(method_speed, "spread_blocks", lambda *_: np.arange(2, 6))
    config = {**CONFIG, "method": "enumerate", "layers": 3, "mask": mask}
    row = method_speed.measure(config)
    assert (row["timed"], row["substitutions"]) == (4, 11)
    assert row["all_seconds"] == row["method_seconds"] * 11 / 4
    assert row["far_seconds"] == row["all_seconds"] * (100_000 / 12) ** 3
    table = method_speed.table([(config, row)]).splitlines()
    assert "4 of 11" in table[-1]

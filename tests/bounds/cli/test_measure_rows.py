"""What a command says of itself to a sweep is what it writes to its own store."""

import csv

import pytest

from bounds.cli.shared.swept import BATCHED, find_batched, is_of_rows
from bounds.figures.sweeps import is_number
from bounds.store.results import MemoryResults, ResultStore
from tests.bounds.cli.outputs import RUNS

SLOW = set(BATCHED) - {"entropy"}  # they compile


class Found(MemoryResults):
    """A store's results, which are read and never added to."""

    def __init__(self, store):
        self.store, self.path = store, store.path

    def find(self, config):
        return self.store.find(config)

    def seconds(self, config):
        return self.store.seconds(config)

    def record(self, config, *_, **__):
        pytest.fail(f"{config} is not in the command's own store")


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=[pytest.mark.slow] if c in SLOW else []) for c in BATCHED],
)
def test_a_sweep_gets_what_the_command_records(run, command):
    assert run(command, *RUNS[command], "--out=results").code == 0
    found = find_batched(command)
    options = found.read([*RUNS[command], "--out=results"])
    with ResultStore("results/results.sqlite") as store:
        recorded = found.measure(options, Found(store))
    assert recorded
    assert all(row["n"] for row in recorded)
    drawn = {x for row in recorded for x in row if is_number(row[x])}
    assert [x for x in drawn if not is_of_rows(command, x)] == []
    assert found.measure(options, MemoryResults()) == recorded


@pytest.mark.slow
def test_a_sweep_of_curves_has_the_columns_of_a_curve(run):
    given = [*RUNS["curve"], "--bounds=none"]
    assert run("curve", *given, "--out=alone").code == 0
    assert run("batch", "--command=curve", *given, "--out=swept").code == 0
    with open("alone/curve.csv") as alone, open("swept/batch.csv") as swept:
        assert set(next(csv.reader(alone))) <= set(next(csv.reader(swept)))

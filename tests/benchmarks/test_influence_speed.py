"""The speed of the exact influence: what is timed is all that is counted."""

from benchmarks import influence_speed
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.propagation.change_block import prepare
from tests.benchmarks.settings import ONCE

CONFIG = {**ONCE, "layers": 1, "n": 6, "mask": "none", **influence_speed.SIZES}
CONFIG |= {"weighting": "softmax", "exhaustive": True, "repeats": 3, "budget": 60.0}


def test_every_timed_call_forms_its_base_pass(monkeypatch):
    formed, run = [], SharedBase.run

    def run_and_count(shared, function, *given):
        formed.extend([function] if function is prepare else [])
        return run(shared, function, *given)

    # A count of operations traces the pass without forming it.
    monkeypatch.setattr(SharedBase, "run", run_and_count)
    row = influence_speed.measure(CONFIG)
    assert len(formed) == 1 + row["calls"]
    assert row["speedup"] == row["exhaustive_seconds"] / row["incremental_seconds"]


def test_weightings_have_lines_of_their_own():
    row = {"incremental_seconds": 1.0, "forward_passes": 2.0}
    measured = [
        ({**CONFIG, "weighting": name, "n": n}, row)
        for name in ("softmax", "average_hard")
        for n in (8, 16)
    ]
    lines = influence_speed.draw(measured).axes[0].lines
    assert [line.get_label().split(", ")[-1] for line in lines] == [
        "softmax",
        "average_hard",
    ]

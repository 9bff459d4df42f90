"""`sensitivity` writes what `average_sensitivity` finds."""

from pathlib import Path

import numpy as np

import bounds
from tests.bounds.cli.outputs import SHAPE_FLAGS, read_csv, read_json

TINY = [*SHAPE_FLAGS, "--scale=3", "--num_inputs=2"]


def test_the_files_hold_what_python_finds(run, make_model):
    lengths = (3, 4, 5, 17)
    flags = ["--seed=5", f"--lengths={','.join(map(str, lengths))}"]
    result = run("sensitivity", *TINY, *flags, "--form=sign").done()
    drawn = {"scale": 3.0, "mask": "future", "position": "sinusoidal"}
    model = make_model(key=5, num_classes=2, **drawn)
    rows, record = read_csv("sensitivity"), read_json("sensitivity")
    for n, row in zip(lengths, rows, strict=True):
        found = bounds.average_sensitivity(model, n, num_inputs=2, seed=5)
        counts = [int(row[x]) for x in ("n", "positions", "inputs")]
        assert counts == [n, found.positions, found.inputs]
        assert float(row["lower"]) == found.lower
        assert float(row["upper"]) == found.upper
        assert row["kind"] == found.kind
        ends = [row["interval_lower"], row["interval_upper"]]
        assert ends == ["", ""] or np.allclose(np.float64(ends), found.interval)
    assert [row["kind"] for row in rows] == [*(3 * ["exact"]), "estimated"]
    assert record["fit"]["used"] == 4
    assert record["finding"] in result.out.splitlines()
    assert Path("results/sensitivity/sensitivity.png").stat().st_size > 1000

"""An option that changes a result changes the key of its cell, and of no other."""

from pathlib import Path

import pytest

from bounds.cli.main import COMMANDS
from bounds.store.results import cell_key
from tests.bounds.cli.outputs import RUNS

PREDICTOR = ["--model=parity.safetensors", "--lengths=3", "--reading=query"]
GIVEN = ["--model=parity.safetensors", "--lengths=4", "--tokens=tokens.txt"]
# Flags of a run where they are not those of `RUNS`, a further flag, and the number of cells
# that it leaves as they were.
CHANGED = [
    ("entropy", [], "--p=0.3", 0),
    ("entropy", [], "--language=dyck2", 0),
    ("entropy", [], "--lengths=2,4,8", 2),
    ("entropy", PREDICTOR, "--eps=closed_form", 0),
    ("entropy", PREDICTOR, "--dtype=float32", 0),
    ("depth", [], "--free=0.9", 1),  # of DYCK
    ("depth", [], "--num_heads=2", 0),
    ("compile", [], "--self_test=3", 0),
    ("compile", [], "--seed=1", 0),
    ("compile", [], "--mode=FU", 0),
    ("constants", [], "--query=0", 0),
    ("constants", [], "--scale=0.5", 0),
    ("simulate", [], "--epsilon=0.1", 0),
    ("simulate", [], "--at=0.1", 0),
    ("simulate", [], "--lengths=3,4", 1),
    ("lipschitz", GIVEN, "--seed=1", 0),
    ("lipschitz", [], "--restarts=1", 0),
    ("sensitivity", [], "--form=real", 0),
    ("sensitivity", [], "--target=logit_difference:0:1", 0),
    ("supremum", [], "--length=5", 0),
]


@pytest.mark.parametrize(("command", "flags", "changed", "kept"), CHANGED)
def test_what_changes_a_result_changes_its_key(
    run, parity_file, command, flags, changed, kept
):
    Path("tokens.txt").write_text("0 1 0 1")
    flags, named = flags or RUNS[command], COMMANDS[command]
    before, same, after = (
        [cell_key(cell.config) for cell in named.plan(named.read(given)).cells]
        for given in (flags, [*flags, "--out=elsewhere", "--fresh"], [*flags, changed])
    )
    assert before
    assert before == same
    assert len(set(before) & set(after)) == kept

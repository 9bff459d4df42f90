"""Laws of all commands: options, keys, rows of sweeps, and columns that are described."""

import csv
from pathlib import Path

import pytest

from bounds.cli import influence, lipschitz, model
from bounds.cli.main import COMMANDS
from bounds.cli.model import ModelOptions
from bounds.cli.shared.options import Group, fields_of, option
from bounds.cli.shared.swept import BATCHED, find_batched, is_of_rows
from bounds.curves.columns import bound_columns
from bounds.figures.sweeps import is_number
from bounds.lemma5.lipschitz.curve import NAMES as BOUNDS
from bounds.simulation.compute import COLUMNS as SIMULATION
from bounds.store.results import MemoryResults, ResultStore, cell_key
from tests.bounds.cli.outputs import CURVE, EVERY, FILES, RUNS, SHAPE_FLAGS, find_words

# What the entry point and the runner read, and a writer of files, among all values.
RUNNER = {"out", "overwrite", "fresh", "figure_format", "max_seconds", "retry_failed"}
RUNNER |= {"figure"}
# Of more inputs than are listed, and with options that have a default of their own.
MORE = {x: flags for x, flags in EVERY.items() if x != "import"} | {
    "curve": [*SHAPE_FLAGS, *CURVE.split(), "--weighting=average_hard"],
    "lipschitz": [*EVERY["lipschitz"], "--restarts=1", "--steps=1"],
    "sensitivity": [*EVERY["sensitivity"], "--target=logit_difference:0:1"],
    "simulate": [*SHAPE_FLAGS, "--lengths=12", "--num_inputs=1"],
}


@pytest.fixture
def unread(monkeypatch):
    """Options of a command that a run of it does not read, though they apply."""
    read, parsed, quiet = set(), [], []
    plain, parse = Group.__getattribute__, Group.parse.__func__

    def noting(self, name):
        if not quiet and name in fields_of(type(self)):
            read.add(name)
        return plain(self, name)

    def unnoted(method):
        def call(*given):
            quiet.append(method)
            try:
                return method(*given)
            finally:
                quiet.pop()

        return call

    def kept(cls, values):
        parsed.append(parse(cls, values))
        return parsed[-1]

    monkeypatch.setattr(Group, "__getattribute__", noting)
    monkeypatch.setattr(Group, "parse", classmethod(kept))
    for name in ("__post_init__", "values", "refuse_unused"):
        monkeypatch.setattr(Group, name, unnoted(getattr(Group, name)))

    def found():
        options = parsed[0]
        every = fields_of(type(options)).values()
        used = (x.name for x in every if not x.used_if or x.used_if(options))
        quiet.append(None)  # the predicates read, too
        return set(used) - read - RUNNER

    return found


@pytest.mark.parametrize("command", MORE)
def test_every_option_that_applies_is_read(run, unread, command):
    run(command, *MORE[command]).done()
    assert unread() == set()


def test_an_option_that_is_not_read_is_found(run, monkeypatch, unread):
    class Longer(ModelOptions):
        planted: int = option(1, "Read by nobody.", least=1)

    monkeypatch.setattr("bounds.cli.model.ModelOptions", Longer)
    assert "plan" in vars(model)
    assert run("model", "--d_model=4").code == 0
    assert unread() == {"planted"}


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


DECLARED = {
    "influence.csv": (*influence.COLUMNS, *influence.SYMBOL_NAMES),
    "lipschitz.csv": (
        *lipschitz.COLUMNS,
        *(f"{kind}_{name}" for kind in ("log10", "looseness") for name in BOUNDS),
    ),
    "simulate.csv": SIMULATION,
}


@pytest.mark.parametrize("file", DECLARED)
def test_what_a_csv_declares_is_described(file):
    assert [x for x in DECLARED[file] if find_words(file, x) is None] == []
    named = [x for x in FILES[file] if "*" not in x]
    assert set(named) <= set(DECLARED[file])


def test_bounds_of_curves_are_described():
    assert set(bound_columns()) <= set(FILES["curve.csv"])


def test_a_name_that_is_nowhere_described_is_noticed():
    assert find_words("curve.csv", "influence") is None
    assert find_words("train.csv", "loss_16") == find_words("train.csv", "loss_4")

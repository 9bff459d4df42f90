"""A sweep computes each cell once, whatever stops it, and says what is wrong first."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from bounds.batch.specification import Specification
from bounds.cli.batch import BatchOptions, describe_plan
from bounds.cli.main import COMMANDS
from bounds.cli.shared.options import fields_of
from bounds.cli.shared.swept import longest, make_cells, quantity_of
from bounds.store.results import cell_key, read_cells, read_store
from bounds.store.sweep import Cell
from jax_models import InputError
from tests.bounds.cli.outputs import read_csv

pytestmark = pytest.mark.usefixtures("no_figures")

SWEEP = ["--command=entropy", "--sweep=lengths=2,4,8", "--sweep=p=0.2,0.7"]
FAILING = ["--command=entropy", "--sweep=lengths=2,4", "--sweep=p=0.2,7"]
STORE = "results/batch/results.sqlite"


def result_rows(path):
    """Returns the rows of a store, sorted, without what two runs differ in."""
    # Somebody may commit between two runs.
    timing = ("seconds", "finished")
    left_out = (*timing, "git_commit")
    rows = [
        {name: value for name, value in row.items() if name not in left_out}
        for row in read_cells(path)
    ]
    return sorted(rows, key=lambda row: row["key"])


def finished(path):
    return {row["key"]: row["finished"] for row in read_cells(path)}


def test_a_sweep_writes_the_rows_of_all_cells(run):
    run("batch", *SWEEP).done()
    rows = read_csv("batch")
    assert [(row["sweep.lengths"], row["sweep.p"]) for row in rows] == [
        (n, p) for n in ("2", "4", "8") for p in ("0.2", "0.7")
    ]
    for row in rows[::5]:
        out = f"one-{row['n']}-{row['sweep.p']}"
        flags = [f"--lengths={row['n']}", f"--p={row['sweep.p']}", f"--out={out}"]
        assert run("entropy", *flags).code == 0
        (alone,) = read_csv(f"{out}/entropy.csv")
        assert {name: row[name] for name in alone if name in row} == {
            name: value for name, value in alone.items() if name in row
        }
        assert row["optimal"] == alone["optimal"]
    lines = Path("results/batch/batch.jsonl").read_text().splitlines()
    assert [json.loads(line)["n"] for line in lines] == [2, 2, 4, 4, 8, 8]


def test_what_is_done_is_not_done_again_and_files_are_written_from_the_store(run):
    run("batch", *SWEEP)
    before = finished(STORE)
    files = [
        Path("results/batch", x) for x in ("batch.csv", "batch.jsonl", "batch.png")
    ]
    contents = [path.read_bytes() for path in files]
    for path in files:
        path.write_text("gone")
    assert "0 of 6 cells to compute" in run("batch", *SWEEP).out
    assert finished(STORE) == before
    assert [path.read_bytes() for path in files] == contents
    # A larger sweep adds the cells that are new.
    run("batch", *SWEEP[:2], "--sweep=p=0.2,0.7,0.9")
    assert len(finished(STORE)) == 9
    assert before.items() <= finished(STORE).items()
    run("batch", *SWEEP, "--fresh")
    assert all(finished(STORE)[key] > before[key] for key in before)


def test_another_figure_is_drawn_without_computing(run, monkeypatch):
    run("batch", *SWEEP)
    with monkeypatch.context() as patch:
        patch.delattr("bounds.cli.entropy.plan")
        result = run("batch", *SWEEP, "--x=p", "--y=unigram", "--figure_format=svg")
    assert (result.code, result.err) == (0, "")
    text = Path("results/batch/batch.svg").read_text()
    assert all(f">{word}<" in text for word in ("--p", "unigram", "--lengths", "8"))
    # A column of words: every other file is written.
    names = {path.name for path in Path("results/batch").iterdir()}
    for axis in ("x", "y"):
        refused = run("batch", *SWEEP, f"--{axis}=eps_kind", f"--out={axis}")
        refused.assert_refused(f"--{axis}=eps_kind: expected one of ")
        assert {path.name for path in Path(axis).iterdir()} >= names - {"batch.svg"}


def test_axes_are_in_words():
    assert quantity_of("influence", "max", "‖Δ‖") == "maximum influence\n(‖Δ‖)"
    assert quantity_of("influence", "max", "") == "maximum influence"
    assert quantity_of("restrict", "free", "‖Δ‖") == "free positions"
    assert quantity_of("curve", "some_number", "‖Δ‖") == "some number"


@pytest.mark.parametrize("dry", [[], ["--dry_run"]], ids=["run", "dry run"])
@pytest.mark.parametrize("flag", ["x", "y"])
def test_an_axis_that_no_cell_has_is_refused_before_any_is_run(
    run, tmp_path, flag, dry
):
    result = run("batch", *SWEEP, f"--{flag}=bogus", *dry)
    result.assert_refused(f"--{flag}=bogus: no swept flag, and no column of")
    assert result.out == ""
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "sweep",
    [
        ["--command=entropy", "--sweep=p=0.7,0.2", "--lengths=2,4"],
        FAILING,
        ["--command=entropy", "--sweep=p=0.2", "--lengths=2", "--max_seconds=0"],
    ],
    ids=["several rows a cell, not in the order they ran", "failures", "nothing run"],
)
def test_the_store_is_read_as_the_table_that_is_exported(run, sweep):
    run("batch", "--command=entropy", "--sweep=lengths=2,8", "--p=0.2")
    run("batch", *sweep)
    read_store(STORE).to_csv("read.csv")
    assert Path("read.csv").read_text() == Path("results/batch/batch.csv").read_text()


def test_a_seed_is_shared_by_all_cells(run):
    asked = "--command=simulate --preset=ones --lengths=12 --sweep=epsilon=0.1,0.2"
    assert run("batch", *asked.split(), "--seed=5").code == 0
    assert set(read_cells(STORE).column("seed")) == {5}


def test_a_failed_cell_is_kept_with_its_message_and_tried_again_when_asked(run):
    told = "2 of 4 cells failed and are recorded as failed"
    run("batch", *FAILING).assert_refused(told)
    before, messages = finished(STORE), read_cells(STORE).column("message")
    assert [x is None or "p = 7" in x for x in messages].count(True) == 4
    run("batch", *FAILING).assert_refused("lengths=2 p=7: end probability p = 7")
    assert finished(STORE) == before
    run("batch", *FAILING, "--retry_failed").assert_refused(told)
    assert sum(finished(STORE)[key] > before[key] for key in before) == 2


def test_a_bug_in_a_cell_does_not_stop_the_others(run, monkeypatch):
    from bounds.cli import entropy

    whole = entropy.plan
    monkeypatch.setattr(entropy, "plan", lambda x: whole(x) if x.p < 0.5 else 1 // 0)
    run("batch", *SWEEP).assert_refused("3 of 6 cells failed")
    messages = [row["message"] for row in read_cells(STORE) if row["message"]]
    assert set(messages) == {"ZeroDivisionError: integer division or modulo by zero"}


def test_a_sweep_without_time_or_of_a_plan_computes_nothing(run, tmp_path):
    result = run("batch", *SWEEP, "--dry_run").done()
    assert "6 of 6 cells to compute" in result.out
    assert "lengths=8 p=0.7" in result.out
    assert not list(tmp_path.iterdir())
    result = run("batch", *SWEEP, "--max_seconds=0").done()
    assert "6 cells are left" in result.out
    assert len(read_cells(STORE)) == 0
    assert run("batch", *SWEEP).code == 0
    assert len(read_cells(STORE)) == 6


def key_of(**fixed):
    (cell,) = make_cells(Specification("influence", fixed, {}))
    return cell_key(cell.config)


INPUT = {x: y for x, y in fields_of(COMMANDS["influence"].options).items() if y.file}


@pytest.mark.parametrize("flag", INPUT)
@pytest.mark.parametrize("name", ["file", "folder/vocab.txt"])
def test_the_content_of_files_is_part_of_a_cells_key(tmp_path, flag, name):
    path, keys = tmp_path / name, []
    path.parent.mkdir(exist_ok=True)
    given = {flag: str(tmp_path / name.partition("/")[0])}
    for text in ("0 1 0", "0 1 1", "0 1 0"):
        path.write_text(text)
        keys.append(key_of(**given))
    assert keys[0] == keys[2] != keys[1]
    assert key_of(**given, compilation_cache=str(tmp_path)) == keys[2]


def test_dask_that_is_not_installed_is_named(run, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    run("batch", *SWEEP, "--local_workers=2").assert_refused("pip install distributed")


# Sweeps are killed in forks of a process that has imported everything and started
# nothing: so are many in the time of one start.
KILLS = """
    import os, random, signal, sys, time
    from bounds.cli.main import main
    from bounds.store.results import read_cells
    kills, longest, seed, store, *arguments = sys.argv[1:]
    generator = random.Random(int(seed))

    def start(killed_after):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            sys.stdout = open(writer, "w")
            code = main(arguments)
            sys.stdout.flush()
            os._exit(code)
        os.close(writer)
        with open(reader) as told:
            # Three of four fall among the cells, one before or after the first.
            if killed_after is not None and generator.random() < 0.75:
                while (line := told.readline()) and not line.startswith("1 of "):
                    pass
            if killed_after is not None:
                time.sleep(killed_after)
                os.kill(child, signal.SIGKILL)
            told.read()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    for _ in range(int(kills)):
        code = start(generator.uniform(0.0, float(longest)))
        held = len(read_cells(store)) if os.path.exists(store) else 0
        print(int(code == -signal.SIGKILL), held)
    print(start(None), len(read_cells(store)))
"""


def run_with_kills(kills, longest, seed, store, arguments):
    """Run a sweep to its end.

    Returns, of each run: whether it was killed (of the last its exit code), and the rows
    that the store held then.
    """
    asked = map(str, (kills, longest, seed, store, *arguments))
    words = [sys.executable, "-c", textwrap.dedent(KILLS), *asked]
    ended = subprocess.run(words, capture_output=True, text=True, check=True)
    return [tuple(map(int, line.split())) for line in ended.stdout.splitlines()]


@pytest.mark.parametrize(
    ("cells", "kills", "longest"),
    [(60, 2, 0.1), pytest.param(210, 20, 0.3, marks=pytest.mark.slow)],
)
def test_a_sweep_killed_at_random_moments_ends_like_an_undisturbed_one(
    tmp_path, run, cells, kills, longest
):
    probabilities = ",".join(f"{0.1 + 0.8 * k / cells:.4f}" for k in range(cells // 2))
    sweep = ["batch", "--command=entropy", "--lengths=2,6,10"]
    sweep += ["--sweep=language=parity,dyck2", f"--sweep=p={probabilities}"]
    store = "killed/results.sqlite"
    *broken, last = run_with_kills(kills, longest, 7, store, [*sweep, "--out=killed"])
    assert last == (0, cells)
    assert sum(was_killed for was_killed, _ in broken) >= kills // 2
    held = [rows for _, rows in broken]
    assert held == sorted(held)
    among = {rows for rows in held if 0 < rows < cells}
    assert len(among) >= (5 if kills > 10 else 1), held
    assert run(*sweep, "--out=whole").code == 0
    rows = result_rows(store)
    assert len(rows) == cells
    assert rows == result_rows("whole/results.sqlite")
    for name in ("status", "optimal", "sweep.p"):
        killed, whole = (read_csv(f"{x}/batch.csv") for x in ("killed", "whole"))
        assert [row[name] for row in killed] == [row[name] for row in whole]
    # The comparison sees one wrong digit.
    rows[0]["rows"][0]["optimal"] *= 1 + 2**-52
    assert rows != result_rows("whole/results.sqlite")


FLAGS = {
    "language": ("dyck2", "--language=dyck2"),
    "lengths": ("2,4", "--lengths=2,4"),
    "diagonal": ("false", "--nodiagonal"),
    "rows": ("2", "--rows=2"),
    "temperature": ("1,inverse_log:2", "--temperature=1,inverse_log:2"),
    "p": ("1e-05", "--p=1e-05"),
}


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("entropy", ("language", "lengths", "p")),
        ("scan", ("language", "diagonal", "rows")),
        ("curve", ("lengths", "temperature")),
    ],
)
def test_flags_beside_the_command_are_held_fixed_in_all_cells(tmp_path, command, names):
    typed = [FLAGS[name][1] for name in names]
    apart = [part for flag in typed for part in flag.split("=", 1)]
    given = {name: FLAGS[name][0] for name in names}
    expected = Specification(command, given, {"seed": ("1", "2")})
    fixed = {name: value for name, value in given.items() if name != names[0]}
    text = {"command": command, "fixed": fixed, "sweep": {"seed": [1, 2]}}
    (tmp_path / "a.json").write_text(json.dumps(text))
    for arguments in (
        [*typed, f"--command={command}", "--sweep=seed=1,2"],
        [*apart, "--command", command, "--sweep", "seed=1,2"],
        [f"--spec={tmp_path}/a.json", typed[0]],
    ):
        batch = COMMANDS["batch"]
        options = batch.read(arguments)
        assert isinstance(options, BatchOptions)
        assert options.specification() == expected


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # what Dask warns of
def test_a_sweep_joins_a_running_scheduler_and_outlives_a_worker(run, tmp_path):
    distributed = pytest.importorskip("distributed")
    cells, killed, store = 160, [], "far/results.sqlite"
    sweep = ["batch", "--command=entropy", "--sweep=language=parity,dyck2"]
    sweep += [f"--sweep=lengths={','.join(map(str, range(2, 42)))}", "--sweep=p=0.3,7"]

    def kill(worker):
        """Kill the worker when some cells are finished and most are not."""
        while not killed:
            with contextlib.suppress(OSError, InputError):  # before the store is made
                if (held := len(read_cells(store))) >= 5:
                    os.kill(worker, signal.SIGKILL)
                    killed.append(held)
            time.sleep(0.01)

    settings = {"processes": True, "threads_per_worker": 1, "host": "127.0.0.1"}
    with (
        distributed.LocalCluster(2, dashboard_address=None, **settings) as cluster,
        distributed.Client(cluster) as client,
    ):
        address, workers = cluster.scheduler_address, client.run(os.getpid).values()
        assert len(set(workers)) == 2
        killer = threading.Thread(target=kill, args=[*workers][:1])
        killer.start()
        result = run(*sweep, f"--scheduler={address}", "--out=far")
        killer.join()
    told = f"{cells // 2} of {cells} cells failed"
    result.assert_refused(told)
    assert killed[0] < cells
    run(*sweep, "--out=near").assert_refused(told)
    rows = result_rows(store)
    assert len(rows) == cells
    assert rows == result_rows("near/results.sqlite")


CELLS = [Cell({"command": "test", "index": k}, f"index={k}", dict) for k in range(90)]


def row(cell, status):
    return {"key": cell_key(cell.config), "status": status}


def test_what_is_done_or_failed_is_counted_and_not_run():
    other = Cell({"command": "other"}, "other", dict)
    rows = row(CELLS[0], "done"), row(CELLS[1], "failed"), row(other, "done")
    *lines, told = describe_plan(CELLS, rows)
    assert lines == [cell.label for cell in CELLS[2:]]
    assert (
        told == "88 of 90 cells to compute, 1 failed (--retry_failed runs them again)"
    )
    assert describe_plan(CELLS, rows, True)[-1] == "89 of 90 cells to compute"


def test_cells_run_by_length_and_equal_ones_as_they_were_swept():
    lengths = [64, (4, 64), 64, 64, 2, None]
    cells = [
        dataclasses.replace(CELLS[k], config={"lengths" if k == 1 else "length": n})
        for k, n in enumerate(lengths)
    ]
    order = [cell.label for cell in sorted(cells, key=longest)]
    assert order == [f"index={k}" for k in (5, 4, 0, 1, 2, 3)]

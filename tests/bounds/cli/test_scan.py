"""`scan` writes what `bounds.scan` returns, whole or in parts."""

import dataclasses
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.cli import parts
from bounds.figures.inputs import scan_figure
from bounds.influence import LogProbability
from bounds.influence.scan import Frobenius, scan
from bounds.store.results import ResultStore, read_store
from tests.bounds.cli.outputs import (
    NAMES,
    QUICK,
    SHAPE_FLAGS,
    read_csv,
    read_json,
    tokens_of,
)
from tests.compiled import programs

OUT = Path("results/scan")
TOKENS = [0, 2, 1, 1, 0, 2, 1]
FILES = ("scan.csv", "scan.npz", "scan.png")


def arrays():
    with np.load(OUT / "scan.npz") as found:
        return dict(found)


@pytest.fixture
def flags(make_model, tmp_path):
    """A model over three symbols, and an input."""
    path = tmp_path / "tokens.txt"
    path.write_text(" ".join(map(str, TOKENS)))
    weight = np.random.default_rng(1).standard_normal((3, 4))
    model = dataclasses.replace(
        make_model(vocab_size=3, mask="none"), readout=jm.Readout(jnp.asarray(weight))
    )
    jm.save(model, tmp_path / "model.safetensors")
    return [
        f"--model={tmp_path}/model.safetensors",
        f"--tokens={path}",
        "--method=exhaustive",
    ]


def small_parts(monkeypatch, positions=2):
    """Parts of so many positions."""
    monkeypatch.setattr(parts, "PART", 3 * positions)
    monkeypatch.setattr(parts, "BLOCKS", 0)


CASES = {
    "one row": ([], {}),
    "rows": (["--rows=3,-1"], {"rows": [3, -1]}),
    "signed": (
        ["--rows=all", "--target=logits", "--reduce=none", "--target_symbols=2,0"],
        {"rows": "all", "target": "logits", "reduce": "none", "target_symbols": [2, 0]},
    ),
    "largest": (
        ["--rows=all", "--reduce=max", "--nodiagonal", "--positions=5,0,2"],
        {"rows": "all", "reduce": "max", "diagonal": False, "positions": [5, 0, 2]},
    ),
    "mean": (
        ["--reduce=mean", "--target=log_probability:1", "--symbols=1,2"],
        {"reduce": "mean", "target": LogProbability(1), "symbols": [1, 2]},
    ),
    "map": (
        ["--rows=all", "--target=logits", "--reduce=frobenius:tensor"],
        {"rows": "all", "target": "logits", "reduce": Frobenius(symmetrize="tensor")},
    ),
}
# Where they are not four: of fewer positions, or of two symbols.
PARTS = {"largest": 2, "mean": 3}


def assert_is(found):
    """The files say what a scan says."""
    kept = arrays()
    assert tuple(kept["axes"]) == found.axes
    for name in ("positions", "symbols", "rows", "tokens"):
        assert np.array_equal(kept[name], getattr(found, name)), name
    np.testing.assert_array_equal(np.isnan(kept["values"]), np.isnan(found.values))
    for name in ("values", "lower", "upper"):
        np.testing.assert_allclose(kept[name], getattr(found, name), 1e-12, 1e-12)
    assert np.all((kept["lower"] <= kept["values"]) | np.isnan(kept["values"]))
    rows = read_csv("scan")
    assert len(rows) == np.sum(~np.isnan(found.values))
    values = [float(row["value"]) for row in rows]
    by_position = kept["values"][np.argsort(found.positions)]
    assert values == by_position[~np.isnan(by_position)].tolist()
    assert (str(kept["kind"]), kept["kind"].shape) == (found.kind, ())
    known = {row["kind"] for row in rows}
    assert "exact" in known <= {"exact", "enclosure"}
    record = read_json("scan")
    assert record["max"] == max(map(abs, values))
    # The first of equal ones.
    best = next(row for row in rows if float(row["value"]) == record["value"])
    for name in ("position", "symbol", "row"):
        assert best[name] == ("" if record[name] is None else str(record[name]))
    assert record["substitutions"] == found.substitutions


@pytest.mark.parametrize("case", CASES)
def test_the_command_says_what_the_function_returns(case, run, flags, monkeypatch):
    typed, given = CASES[case]
    small_parts(monkeypatch)
    ended = run("scan", *flags, *typed)
    assert (ended.code, ended.err) == (0, "")
    model = jm.load(flags[0].removeprefix("--model="))
    assert_is(scan(model, TOKENS, method="exhaustive", **given))
    assert len(read_store(OUT / "results.sqlite")) == PARTS.get(case, 4)
    assert (OUT / "scan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("reduce", [[], ["--reduce=frobenius"]])
def test_a_run_that_is_ended_goes_on_and_ends_with_the_same_files(
    reduce, run, flags, monkeypatch
):
    small_parts(monkeypatch)
    typed = [*flags, "--rounding=none", "--rows=all", *reduce]
    assert run("scan", *typed).code == 0
    whole = [(OUT / name).read_bytes() for name in FILES]
    record, kept = ResultStore.record, []

    def recorded(self, config, **more):
        if len(kept) == 2:
            raise KeyboardInterrupt
        kept.append(config["start"])
        record(self, config, **more)

    monkeypatch.setattr(ResultStore, "record", recorded)
    assert run("scan", *typed, "--fresh").code == 130
    (OUT / "results.sqlite").unlink()
    kept.clear()
    assert run("scan", *typed).code == 130
    for name in FILES:
        (OUT / name).unlink()
    monkeypatch.setattr(
        ResultStore,
        "record",
        lambda self, config, **more: (
            kept.append(config["start"]),
            record(self, config, **more),
        ),
    )
    ended = run("scan", *typed)
    assert (ended.code, kept) == (0, [0, 2, 4, 6])
    assert "positions 0 to 1, from the store" in ended.out
    assert [(OUT / name).read_bytes() for name in FILES] == whole


def test_what_a_map_is_made_of_serves_another(run, flags):
    typed = [*flags, "--rows=all", "--target=logits"]
    for reduce in ("frobenius", "frobenius:map:noapc", "none"):
        assert run("scan", *typed, f"--reduce={reduce}").code == 0
    assert len(read_store(OUT / "results.sqlite")) == 1


def test_symbols_have_names_where_a_tokenizer_has_some(run, folder):
    typed = [f"--model={folder}", "--sequence=ACDE", "--rows=2", "--reduce=none"]
    typed += ["--target=logits", "--target_symbols=A,C", "--method=exhaustive"]
    assert run("scan", *typed, "--symbols=C,D").code == 0
    found = scan(
        jm.from_pretrained(folder, dtype="float64"),
        tokens_of("ACDE"),
        rows=2,
        symbols=[6, 7],
        positions=[1, 2, 3, 4],
        target="logits",
        target_symbols=[5, 6],
        reduce="none",
        method="exhaustive",
    )
    assert_is(found)
    rows = read_csv("scan")
    assert rows[0]["wild_type"] == "A"
    assert {(row["wild_type"], row["symbol_name"]) for row in rows} == {
        *(("A", "C"), ("A", "D"), ("C", "D"), ("D", "C"), ("E", "C"), ("E", "D"))
    }
    assert {(row["target"], row["target_name"]) for row in rows} == {
        *(("5", "A"), ("6", "C"))
    }
    assert NAMES[read_json("scan")["symbol"]] == read_json("scan")["symbol_name"]


def test_classes_are_not_named_as_symbols(run, folder, tmp_path, make_model):
    path = tmp_path / "classifier.safetensors"
    jm.save(make_model(vocab_size=len(NAMES), num_classes=2), path)
    typed = [f"--model={path}", f"--tokenizer={folder}", "--sequence=ACDE"]
    typed += ["--target=logits", "--reduce=none", *QUICK]
    assert run("scan", *typed).code == 0
    assert {row["target"] for row in read_csv("scan")} == {"0", "1"}
    assert "target_name" not in read_csv("scan")[0]


def test_a_map_of_a_text_is_of_its_letters(run, folder):
    typed = [f"--model={folder}", "--sequence=ACDE", "--rows=all", *QUICK]
    assert run("scan", *typed, "--reduce=frobenius:map").code == 0
    assert arrays()["rows"].tolist() == arrays()["positions"].tolist() == [1, 2, 3, 4]
    assert np.array_equal(arrays()["values"], arrays()["values"].T)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("--target=logits", "‖Δ logits‖₂, nats"),
        ("--target=log_probability:1", "Δ log-probability, nats"),
        ("--target=logits --reduce=none", "largest |Δ logits|, nats"),
        ("--target=logits --reduce=mean", "mean ‖Δ logits‖₂, nats"),
        (
            "--reduce=frobenius:noapc --rows=all",
            "Frobenius norm of Δy, activation units",
        ),
    ],
)
def test_the_figure_says_what_is_drawn(typed, said, run, flags, monkeypatch):
    told, draw = [], scan_figure
    monkeypatch.setattr(
        "bounds.cli.scan.scan_figure",
        lambda scan, quantity, name, shape: (
            told.append((quantity, shape)) or draw(scan, quantity, name, shape)
        ),
    )
    assert run("scan", *flags, *typed.split(), "--figure=letters").code == 0
    assert told == [(said, "letters")]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "method", ["exhaustive", pytest.param("incremental", marks=pytest.mark.slow)]
)
def test_a_dry_run_says_what_the_run_does_and_writes_nothing(
    case, method, run, flags, monkeypatch
):
    small_parts(monkeypatch)
    typed = ["scan", *flags[:2], f"--method={method}", *CASES[case][0]]
    ended = run(*typed, "--dry_run")
    assert (ended.code, ended.err) == (0, "")
    assert not OUT.exists()
    told = dict(line.split(": ", 1) for line in ended.out.splitlines()[1:])
    assert run(*typed).code == 0
    record = read_json("scan")
    assert told["method"] == f"{record['method']} ({record['reason']})"
    shape = " x ".join(f"{n} {axis}s" for axis, n in record["shape"].items())
    assert told["scan"] == shape
    store = read_store(OUT / "results.sqlite")
    count = f"{record['substitutions']}, in {len(store)} parts"
    assert told["substitutions"].startswith(count)
    kept = sum(np.prod(row["shape"]) * len(row["arrays"]) for row in store)
    assert told["store"].startswith(f"{kept} numbers, ")
    assert told["scan.npz"].startswith(f"{arrays()['values'].size} cells, ")
    assert {"estimated cost", "blocks"} <= set(told)


def test_a_dry_run_refuses_what_the_run_would(run, flags):
    typed = [*flags, "--dry_run"]
    run("scan", *typed, "--figure=map").assert_refused("needs an axis of rows")
    run("scan", *typed, "--rows=9").assert_refused("rows = 9")


def test_a_page_is_written_beside_figures(run, flags, monkeypatch):
    pytest.importorskip("plotly")
    typed = [*flags, "--figure_format=html,svg", "--rows=all", "--target=logits"]
    typed.append("--rounding=none")
    ended = run("scan", *typed)
    assert (ended.code, ended.err) == (0, "")
    assert "scan.svg, scan.html" in ended.out
    assert "\\u0394 logits" in (OUT / "scan.html").read_text()
    (OUT / "results.sqlite").unlink()
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    run("scan", *typed).assert_refused("pip install 'attention-bounds[html]'")
    assert not (OUT / "results.sqlite").exists()


def test_a_table_of_too_many_lines_is_not_written(run, flags, monkeypatch):
    assert run("scan", *flags).code == 0
    monkeypatch.setattr("bounds.cli.scan.MAX_ROWS", 13)
    ended = run("scan", *flags)
    assert (ended.code, ended.err) == (0, "")
    assert "scan.csv would have 14 lines, more than 13" in ended.out
    assert not (OUT / "scan.csv").exists()
    assert arrays()["values"].shape == (7, 3)


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (["--rows=7"], "rows = 7; expected an integer from -7 to 6"),
        (["--rows=1,x"], "'1,x' names no rows"),
        (["--rows="], "names no rows"),
        (["--reduce=frobenius:map:tensor"], "is no reduction"),
        (["--reduce=sum"], "'sum' is no reduction; expected none, max, mean"),
        (["--positions=2,7"], "--positions lists 7; the input has positions 0 to 6"),
        (["--method=screened"], "--method=screened"),
        (["--figure=map"], "figure = 'map' needs an axis of rows"),
        (["--figure=heat", "--reduce=max"], "figure = 'heat' needs an axis of symbols"),
        (["--rows=2", "--reduce=frobenius:map"], "needs the rows to be the positions"),
    ],
)
def test_a_bad_flag_is_one_line(typed, complaint, run, flags):
    run("scan", *flags, *typed).assert_refused(complaint)


@pytest.mark.parametrize(
    ("typed", "content", "complaint"),
    [
        ("--sequence=ACZ", "", "'Z'"),
        ("--fasta=file", "", "the file is empty"),
        (
            f"--sequence={'A' * 5000}",
            "",
            "n = 5002 is beyond the model's position table",
        ),
    ],
)
def test_a_bad_input_is_one_line(typed, content, complaint, run, folder):
    Path("file").write_text(content)
    run("scan", f"--model={folder}", typed).assert_refused(complaint)
    assert not (OUT / "scan.json").exists()


def test_a_table_beyond_the_memory_is_refused_in_bytes(run, flags, monkeypatch):
    monkeypatch.setattr("jax_models.run.device_memory.host_bytes", lambda: 2**12)
    monkeypatch.setattr("jax_models.run.device_memory.SMALL", 0)
    typed = [*flags, "--rows=all", "--reduce=frobenius"]
    run("scan", *typed).assert_refused("the table of the map of 7 x 3 x 7 x")


def test_a_random_model_is_scanned_without_a_file(run):
    assert run("scan", *SHAPE_FLAGS, *QUICK, "--length=4", "--rows=all").code == 0
    assert read_json("scan")["shape"] == {"position": 4, "symbol": 2, "row": 4}


@pytest.mark.parametrize("command", ["influence", "scan"])
def test_a_dry_run_compiles_nothing(command, run, make_model, tmp_path):
    jm.save(make_model(num_layers=2, mask="none"), tmp_path / "model.safetensors")
    np.save(tmp_path / "tokens.npy", np.arange(43) % 2)
    flags = ["--model=model.safetensors", "--tokens=tokens.npy"]
    compiled = programs(lambda: run(command, *flags, "--dry_run"))
    assert set(compiled) <= {"jit(stage)"}  # JAX's copy of an array
    assert set(programs(lambda: run(command, *flags))) - {"jit(stage)"}


def test_the_largest_positions_alone_have_radii_on_request(run, flags, monkeypatch):
    small_parts(monkeypatch)
    monkeypatch.setattr("bounds.influence.rounding.FEWEST", 6)
    monkeypatch.setattr("bounds.influence.methods.exhaustive.batch_size", lambda *_: 3)
    assert run("scan", *flags, "--rows=all", "--rounding=top").code == 0
    model, kept = jm.load(flags[0].removeprefix("--model=")), arrays()
    asked = {"rows": "all", "method": "exhaustive", "rounding": "top"}
    found = scan(model, TOKENS, **asked)
    assert (str(kept["kind"]), found.kind) == ("exact", "exact")
    for name in ("enclosed", "values", "lower", "upper"):
        np.testing.assert_allclose(kept[name], getattr(found, name), 1e-12, 1e-12)
    sizes = np.nanmax(np.abs(found.values), axis=(1, 2))
    largest = np.sort(np.argsort(-sizes)[:2])
    assert np.flatnonzero(found.enclosed.any(axis=(1, 2))).tolist() == largest.tolist()

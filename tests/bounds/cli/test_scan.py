"""`scan` writes what `bounds.scan` returns, whole or in parts."""

import dataclasses
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.figures.inputs import scan_figure
from bounds.influence import LogProbability, parts
from bounds.influence.scan import scan
from bounds.influence.table.frobenius import Frobenius
from bounds.store.results import read_store
from tests.bounds.cli.outputs import (
    EASY,
    NAMES,
    QUICK,
    TOKENS,
    read_arrays,
    read_csv,
    read_json,
    tokens_of,
)
from tests.compiled import programs

OUT = Path("results/scan")
FILES = ("scan.csv", "scan.npz", "scan.png")


@pytest.fixture
def model(make_model):
    """A model over three symbols with a read-out."""
    weight = np.random.default_rng(1).standard_normal((3, 4))
    readout = jm.Readout(jnp.asarray(weight))
    return dataclasses.replace(make_model(vocab_size=3, mask="none"), readout=readout)


@pytest.fixture
def ask(run, model, tokens_file):
    """Run `scan` of that model on an input."""
    jm.save(model, "model.safetensors")
    given = "--model=model.safetensors", f"--tokens={tokens_file}", *EASY
    return lambda *flags: run("scan", *given, *flags)


def small_parts(monkeypatch, positions=2):
    """Parts of so many positions."""
    monkeypatch.setattr(parts, "PART", 3 * positions)
    monkeypatch.setattr(parts, "BLOCKS", 0)


# Flags, what they ask of the function, and what the figure is said to draw.
NORM = "‖Δy‖₂, activation units"
CASES = {
    "one row": (["--figure=letters"], {}, NORM),
    "rows": (["--rows=3,-1"], {"rows": [3, -1]}, NORM),
    "signed": (
        ["--rows=all", "--target=logits", "--reduce=none", "--target_symbols=2,0"],
        {"rows": "all", "target": "logits", "reduce": "none", "target_symbols": [2, 0]},
        "largest |Δ logits|, nats",
    ),
    "largest": (
        ["--rows=all", "--reduce=max", "--nodiagonal", "--positions=5,0,2"],
        {"rows": "all", "reduce": "max", "diagonal": False, "positions": [5, 0, 2]},
        "largest |Δy|, activation units",
    ),
    "mean": (
        ["--reduce=mean", "--target=log_probability:1", "--symbols=2,1"],
        {"reduce": "mean", "target": LogProbability(1), "symbols": [2, 1]},
        "mean Δ log-probability, nats",
    ),
    "map": (
        ["--rows=all", "--target=logits", "--reduce=frobenius:tensor"],
        {"rows": "all", "target": "logits", "reduce": Frobenius(symmetrize="tensor")},
        "Frobenius norm of Δ logits, less its average product, nats",
    ),
}
# Where they are not four: of fewer positions, or of two symbols.
PARTS = {"largest": 2, "mean": 3}


def assert_is(found):
    """The files say what a scan says."""
    kept = read_arrays()
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
@pytest.mark.parametrize(
    "method", ["exhaustive", pytest.param("incremental", marks=pytest.mark.slow)]
)
def test_the_command_says_what_the_function_returns_and_a_dry_run_what_it_will_do(
    case, method, ask, model, monkeypatch
):
    typed, given, quantity = CASES[case]
    small_parts(monkeypatch)
    drawn, draw = [], scan_figure
    noted = lambda *given: drawn.append(given) or draw(*given)
    monkeypatch.setattr("bounds.cli.scan.scan_figure", noted)
    typed = [f"--method={method}", *typed]
    ended = ask(*typed, "--dry_run").done()
    assert not OUT.exists()
    told = dict(line.split(": ", 1) for line in ended.out.splitlines()[1:])
    ask(*typed).done()
    assert_is(scan(model, TOKENS, method=method, **given))
    assert (OUT / "scan.png").read_bytes().startswith(b"\x89PNG")
    ((_, label, _, shape),) = drawn
    assert label == quantity
    assert (shape == "letters") == ("--figure=letters" in typed)
    record, store = read_json("scan"), read_store(OUT / "results.sqlite")
    assert len(store) == PARTS.get(case, 4)
    assert told["method"] == f"{record['method']} ({record['reason']})"
    shape = " x ".join(f"{n} {axis}s" for axis, n in record["shape"].items())
    assert told["scan"] == shape
    count = f"{record['substitutions']}, in {len(store)} parts"
    assert told["substitutions"].startswith(count)
    kept = sum(np.prod(row["shape"]) * len(row["arrays"]) for row in store)
    assert told["store"].startswith(f"{kept} numbers, ")
    assert told["scan.npz"].startswith(f"{read_arrays()['values'].size} cells, ")
    assert {"estimated cost", "blocks"} <= set(told)


def test_what_a_map_is_made_of_serves_another(ask):
    typed = ["--rows=all", "--target=logits"]
    for reduce in ("frobenius", "frobenius:map:noapc", "none"):
        assert ask(*typed, f"--reduce={reduce}").code == 0
    assert len(read_store(OUT / "results.sqlite")) == 1


def test_symbols_have_names_where_a_tokenizer_has_some(run, folder):
    typed = [f"--model={folder}", "--sequence=ACDE", "--rows=2", "--reduce=none"]
    typed += ["--target=logits", "--target_symbols=A,C", "--method=exhaustive"]
    assert run("scan", *typed, "--symbols=C,D").code == 0
    asked = {"rows": 2, "symbols": [6, 7], "positions": [1, 2, 3, 4]}
    asked |= {"target": "logits", "target_symbols": [5, 6], "reduce": "none"}
    read = jm.from_pretrained(folder, dtype="float64")
    assert_is(scan(read, tokens_of("ACDE"), method="exhaustive", **asked))
    rows = read_csv("scan")
    assert rows[0]["wild_type"] == "A"
    put_in = {row["wild_type"] + row["symbol_name"] for row in rows}
    assert put_in == {"AC", "AD", "CD", "DC", "EC", "ED"}
    assert {row["target"] + row["target_name"] for row in rows} == {"5A", "6C"}
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
    found = read_arrays()
    assert found["rows"].tolist() == found["positions"].tolist() == [1, 2, 3, 4]
    assert np.array_equal(found["values"], found["values"].T)


def test_a_page_is_written_beside_figures(ask, monkeypatch):
    pytest.importorskip("plotly")
    typed = ["--figure_format=html,svg", "--rows=all", "--target=logits"]
    ended = ask(*typed, "--rounding=none").done()
    assert "scan.svg, scan.html" in ended.out
    assert "\\u0394 logits" in (OUT / "scan.html").read_text()
    (OUT / "results.sqlite").unlink()
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    ask(*typed).assert_refused("pip install 'attention-bounds[html]'")
    assert not (OUT / "results.sqlite").exists()


def test_a_table_of_too_many_lines_is_not_written(ask, monkeypatch):
    assert ask().code == 0
    monkeypatch.setattr("bounds.influence.table.lines.MAX_LINES", 13)
    ended = ask().done()
    assert "scan.csv would have 14 lines, more than 13" in ended.out
    assert not (OUT / "scan.csv").exists()
    assert read_arrays()["values"].shape == (7, 3)


def test_a_table_beyond_the_memory_is_refused_in_bytes(ask, monkeypatch):
    monkeypatch.setattr("jax_models.run.device_memory.host_bytes", lambda: 2**12)
    monkeypatch.setattr("jax_models.run.device_memory.SMALL", 0)
    refused = ask("--rows=all", "--reduce=frobenius")
    refused.assert_refused("the table of the map of 7 x 3 x 7 x")


@pytest.mark.parametrize("command", ["influence", "scan"])
def test_a_dry_run_compiles_nothing(command, run, make_model, tmp_path):
    jm.save(make_model(num_layers=2, mask="none"), tmp_path / "model.safetensors")
    np.save(tmp_path / "tokens.npy", np.arange(43) % 2)
    flags = ["--model=model.safetensors", "--tokens=tokens.npy"]
    compiled = programs(lambda: run(command, *flags, "--dry_run"))
    assert set(compiled) <= {"jit(stage)"}  # JAX's copy of an array
    assert set(programs(lambda: run(command, *flags))) - {"jit(stage)"}


def test_the_largest_positions_alone_have_radii_on_request(ask, model, monkeypatch):
    small_parts(monkeypatch)
    monkeypatch.setattr("bounds.influence.rounding.FEWEST", 6)
    monkeypatch.setattr("bounds.influence.methods.exhaustive.batch_size", lambda *_: 3)
    assert ask("--rows=all", "--rounding=top").code == 0
    kept = read_arrays()
    found = scan(model, TOKENS, rows="all", method="exhaustive", rounding="top")
    assert (str(kept["kind"]), found.kind) == ("exact", "exact")
    for name in ("enclosed", "values", "lower", "upper"):
        np.testing.assert_allclose(kept[name], getattr(found, name), 1e-12, 1e-12)
    sizes = np.nanmax(np.abs(found.values), axis=(1, 2))
    largest = np.sort(np.argsort(-sizes)[:2])
    assert np.flatnonzero(found.enclosed.any(axis=(1, 2))).tolist() == largest.tolist()

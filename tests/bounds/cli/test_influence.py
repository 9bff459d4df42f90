"""`influence` lists what every substitution does, and the largest of them."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds import read_store
from bounds.curves.inputs import sampled_inputs
from bounds.curves.measurement import tokens_sha256
from bounds.influence import parts
from bounds.numbers.kind import ROUNDING
from bounds.store.output import sha256
from tests.bounds.cli.outputs import QUICK, SHAPE_FLAGS, TOKENS, read_csv, read_json
from tests.written import written

OUT = Path("results/influence")


def test_positions_that_lump_are_not_done_in_small_blocks(run, model_file, tmp_path):
    model = model_file(mask="none", position=None, num_layers=3)
    tokens = tmp_path / "many.npy"
    np.save(tokens, np.random.default_rng(0).integers(0, 2, 600))
    run("influence", f"--model={model}", f"--tokens={tokens}")
    record = read_json("influence")
    assert (record["method"], record["n"]) == ("lumped", 600)
    assert len(read_store(OUT / "results.sqlite")) == 1


@pytest.fixture
def three_symbols(model_file):
    """Write a model over three symbols."""
    return model_file(vocab_size=3, mask="none")


@pytest.fixture
def ask(run, three_symbols, tokens_file):
    """Run `influence` on that model and the input."""
    given = f"--model={three_symbols}", f"--tokens={tokens_file}"
    return lambda *flags: run("influence", *given, *flags)


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of two positions."""
    monkeypatch.setattr(parts, "part_sizes", lambda *_: (2, 2))


def assert_equals_definition(model_path, query, *, include_query=False):
    model = written(jm.load(model_path))
    found = reference.influence(*model, TOKENS, query, include_query=include_query)
    expected = {at: x for at, x in np.ndenumerate(found) if not np.isnan(x)}
    rows = read_csv("influence")
    pairs = [(int(row["position"]), int(row["symbol"])) for row in rows]
    assert pairs == sorted(expected)
    for pair, row in zip(pairs, rows, strict=True):
        assert float(row["lower"]) <= float(row["upper"])
        assert float(row["lower"]) == pytest.approx(expected[pair], rel=1e-9, abs=1e-11)
        assert float(row["upper"]) == pytest.approx(expected[pair], rel=1e-9, abs=1e-11)
        assert row["kind"] == "exact"
    record = read_json("influence")
    largest = max(expected, key=lambda pair: expected[pair])
    assert (record["position"], record["symbol"]) == largest
    assert record["max_lower"] == pytest.approx(expected[largest], rel=1e-9)
    assert record["max_upper"] == pytest.approx(expected[largest], rel=1e-9)
    assert record["query"] == query


def test_every_substitution_is_listed_with_its_influence(ask, three_symbols):
    result = ask().done()
    assert_equals_definition(three_symbols, query=6)
    record = read_json("influence")
    assert record["model_sha256"] == sha256(three_symbols.read_bytes())
    assert (record["n"], record["dtype"], record["exact"]) == (7, "float64", True)
    assert (record["kind"], record["hypotheses"]) == ("exact", [ROUNDING])
    assert record["rtol_exact"] == 0.01
    assert record["seconds"] > 0
    said = re.search(r"maximum influence is (\S+) \+- (\S+),", result.out)
    shown, radius = said.groups()
    assert float(shown) == pytest.approx(record["max"], abs=float(radius))
    assert 0 < float(radius) < 1e-9
    assert (OUT / "influence.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("small_parts")
def test_parts_join_to_the_whole_and_are_counted(ask, three_symbols, monkeypatch):
    monkeypatch.setattr("jax_models.run.progress.SECONDS_BETWEEN_LINES", 0.0)
    flags = ["--query=2", "--include_query", "--method=exhaustive"]
    told = ask(*flags).out
    steps = re.findall(r"(\d) of 7 positions \(.*: positions (\d) to (\d)", told)
    assert steps == [("2", "0", "1"), ("4", "2", "3"), ("6", "4", "5"), ("7", "6", "6")]
    assert_equals_definition(three_symbols, query=2, include_query=True)
    store = read_store(OUT / "results.sqlite")
    assert list(store.column("config.start")) == [0, 2, 4, 6]
    assert "7 of 7 positions" in ask(*flags).out
    assert read_store(OUT / "results.sqlite") == store


def test_what_a_screen_leaves_open_is_counted_by_itself(ask, monkeypatch):
    monkeypatch.setattr("jax_models.run.progress.SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("jax_models.run.progress.LOOK_AGAIN", 1e3)
    plain = parts.find

    def in_phases(request, choice, rounding, run):
        for step in ((6, 14), (14, 14), (1, 4), (4, 4)):
            run.progress(*step)
        return plain(request, choice, rounding, dataclasses.replace(run, progress=None))

    monkeypatch.setattr(parts, "find", in_phases)
    told = ask("--propose=float32").out
    found = re.findall(r"(\d) of 7 positions(?: done, (\d of 4) left open)?", told)
    assert found == [("3", ""), ("7", ""), ("7", "1 of 4"), ("7", "4 of 4")]


def test_a_maximum_that_nothing_moves_is_exactly_zero(run, model_file):
    """The first of causal rows sees no other position."""
    flags = [f"--model={model_file(mask='future')}", "--length=4", "--query=0"]
    result = run("influence", *flags, "--method=exhaustive")
    record = read_json("influence")
    assert record["max_lower"] == 0 == record["max_upper"]
    assert "maximum influence is 0, exact" in result.out
    assert (record["kind"], record["exact"]) == ("exact", True)


def test_where_pairs_are_many_only_the_largest_of_each_position_is_kept(
    ask, monkeypatch
):
    ask()
    every = read_csv("influence")
    monkeypatch.setattr(parts, "MAX_PAIRS", 5)
    ask()
    rows = read_csv("influence")
    assert [int(row["position"]) for row in rows] == list(range(6))
    for row in rows:
        at = [one for one in every if one["position"] == row["position"]]
        assert row == max(at, key=lambda one: float(one["lower"]))


# Flags that give an input over two symbols, and its tokens.
INPUTS = {
    "--tokens=words.txt": [0, 1, 0, 1],
    "--tokens=words.txt --length=3": [0, 1, 0],
    "--tokens=rows.npy --input=1": [1, 1, 0, 1],
    "--text=text.txt --preset=anbn_one_layer": [0, 0, 1, 1],
    "--length=9 --input=2 --seed=4": None,  # the third of a sample
}


def test_an_input_is_what_the_flags_give(run, tmp_path, make_model):
    (tmp_path / "words.txt").write_text("0 1 0 1")
    (tmp_path / "text.txt").write_text("aabb\n")
    np.save(tmp_path / "rows.npy", [[0, 0, 0, 1], [1, 1, 0, 1]])
    maxima = []
    for flags, tokens in INPUTS.items():
        shape = [] if "--preset" in flags else [*SHAPE_FLAGS, "--vocab_size=2"]
        run("influence", *flags.split(), *shape, *QUICK).done()
        if tokens is None:
            tokens = sampled_inputs(make_model(), "parity", 3, seed=4).draw(9, 2)
        record = read_json("influence")
        assert record["tokens_sha256"] == tokens_sha256(np.array(tokens))
        maxima.append(record["max"])
    assert len(read_store(OUT / "results.sqlite")) == len(set(maxima)) == len(INPUTS)
    rows = ("influence", "--tokens=rows.npy", *SHAPE_FLAGS)
    run(*rows, "--input=2").assert_refused("holds 2 inputs")
    (tmp_path / "text.txt").write_text("aacb\n")
    wrong = run("influence", "--text=text.txt", "--preset=anbn_one_layer")
    wrong.assert_refused("'c' at position 2")


def test_a_refusing_method_is_one_line(run, model_file):
    path = model_file(num_layers=0)
    flags = [f"--model={path}", "--length=4", "--method=incremental"]
    run("influence", *flags).assert_refused("needs a layer, and the model has none")


def test_an_ambiguous_tie_is_one_line(run, model_file):
    path = model_file(weighting="leftmost_hard", tie_resolution=0.05)
    arguments = ["influence", f"--model={path}", "--length=32", "--rounding=none"]
    run(*arguments).assert_refused("neighbouring score cells")
    result = run(*arguments, "--ties=warn")
    assert result.code == 0
    assert result.err.startswith("warning: in 1 results rounding decided")
    assert read_json("influence")["ambiguous"] is True


EACH = "each is kept when it is done"
# What a dry run of some flags says.
DRY = {
    "--num_layers=2": ["method: incremental (the cheapest", "memory: at most "],
    "--method=exhaustive": ["exhaustive (asked for)", "blocks: 2, of at most 32"],
    "--method=exhaustive --memory_limit=80KiB": ["10 s or so, 8 positions at least"],
    "--num_devices=8": ["8 of 8 devices", "blocks: 1, of at most "],
    "--mask=none --position=none": ["method: lumped", "none that can be told", EACH],
    "--method=screened --num_layers=2": ["method: screened", EACH],
}


@pytest.mark.parametrize("flags", DRY)
def test_a_dry_run_says_what_it_would_do_and_writes_nothing(run, flags, tmp_path):
    shape = ["--length=40", "--d_model=4", "--num_heads=1", "--d_ff=4"]
    before = set(tmp_path.rglob("*"))
    result = run("influence", "--dry_run", *shape, *flags.split()).done()
    assert "; n = 40, query 39, activation\n" in result.out
    assert "substitutions: 39, in 1 parts" in result.out
    assert [words for words in DRY[flags] if words not in result.out] == []
    assert set(tmp_path.rglob("*")) == before


def test_results_state_the_sizes_of_blocks_and_memory_limits_them(run, tokens_file):
    shape = ["influence", f"--tokens={tokens_file}", "--vocab_size=3", *SHAPE_FLAGS]
    for flags, expected in (([], 8192), (["--memory_limit=256KiB"], 128)):
        assert run(*shape, "--method=incremental", *flags).code == 0
        record = read_json("influence")
        assert record["block_substitutions"] == expected
        assert record["block_rows"] == 1
    # Results of other sizes are not taken for these, those of other limits are.
    assert run(*shape, "--method=incremental", "--memory_limit=300GiB").code == 0
    assert len(read_store(OUT / "results.sqlite")) == 2

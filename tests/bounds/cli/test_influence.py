"""`influence` lists what every substitution does, and the largest of them."""

import dataclasses
import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bounds
import jax_models as jm
from benchmarks import reference
from bounds import read_store
from bounds.cli import parts
from bounds.curves.inputs import sampled_inputs
from bounds.numbers.kind import ROUNDING
from tests.bounds.cli.outputs import QUICK, SHAPE_FLAGS, read_csv, read_json
from tests.written import written

OUT = Path("results/influence")
TOKENS = [0, 2, 1, 1, 0, 2, 1]


@pytest.fixture
def tokens_file(tmp_path):
    path = tmp_path / "tokens.txt"
    path.write_text("\n".join(map(str, TOKENS)))
    return path


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


def test_every_substitution_is_listed_with_its_influence(
    run, three_symbols, tokens_file
):
    result = run("influence", f"--model={three_symbols}", f"--tokens={tokens_file}")
    assert (result.code, result.err) == (0, "")
    assert_equals_definition(three_symbols, query=6)
    record = read_json("influence")
    (shown, radius) = re.findall(r"maximum influence is (\S+) \+- (\S+),", result.out)[
        0
    ]
    assert float(shown) == pytest.approx(record["max"], abs=float(radius))
    assert 0 < float(radius) < 1e-9
    assert (OUT / "influence.png").read_bytes().startswith(b"\x89PNG")


def test_blocks_of_positions_join_to_the_whole(
    run, three_symbols, tokens_file, monkeypatch
):
    monkeypatch.setattr(parts, "part_sizes", lambda *arguments: (2, 2))
    arguments = ["influence", f"--model={three_symbols}", f"--tokens={tokens_file}"]
    arguments += ["--query=2", "--include_query", "--method=exhaustive"]
    run(*arguments)
    assert_equals_definition(three_symbols, query=2, include_query=True)
    store = read_store(OUT / "results.sqlite")
    assert list(store.column("config.start")) == [0, 2, 4, 6]
    assert "7 of 7 positions" in run(*arguments).out
    assert read_store(OUT / "results.sqlite") == store


def test_progress_names_the_largest_influence_so_far(
    run, three_symbols, tokens_file, monkeypatch
):
    monkeypatch.setattr(parts, "part_sizes", lambda *arguments: (2, 2))
    monkeypatch.setattr("bounds.cli.shared.progress.SECONDS_BETWEEN_LINES", 0.0)
    flags = [f"--model={three_symbols}", f"--tokens={tokens_file}"]
    told = run("influence", *flags).out.splitlines()
    effects = reference.influence(*written(jm.load(three_symbols)), TOKENS)
    shown = []
    for line in told:
        if steps := re.match(r"(\d) of 7 positions .* to \d(.*)", line):
            found = re.fullmatch(r"; largest so far (\S+) at position (\d)", steps[2])
            shown.append(int(steps[1]))
            largest = np.nanmax(effects[: shown[-1]])
            assert found, "what was just found is part of it"
            assert float(found[1]) == pytest.approx(largest, rel=1e-5)
    assert shown == [2, 4, 6, 7]


def test_what_a_screen_leaves_open_is_counted_by_itself(
    run, three_symbols, tokens_file, monkeypatch
):
    monkeypatch.setattr("bounds.cli.shared.progress.SECONDS_BETWEEN_LINES", 0.0)
    monkeypatch.setattr("bounds.cli.shared.progress.LOOK_AGAIN", 1e3)
    plain = parts.find

    def in_phases(request, choice, rounding, run):
        for step in ((6, 14), (14, 14), (1, 4), (4, 4)):
            run.progress(*step)
        return plain(request, choice, rounding, dataclasses.replace(run, progress=None))

    monkeypatch.setattr(parts, "find", in_phases)
    flags = [f"--model={three_symbols}", f"--tokens={tokens_file}"]
    told = run("influence", *flags, "--propose=float32").out
    found = re.findall(r"(\d of 7 positions)(?: done, (\d of 4) left open)?", told)
    whole = "7 of 7 positions"
    assert found == [
        ("3 of 7 positions", ""),
        (whole, ""),
        (whole, "1 of 4"),
        (whole, "4 of 4"),
    ]


def test_radii_are_those_of_all_whatever_the_blocks(
    run, three_symbols, tokens_file, monkeypatch
):
    # As many passes at once in each: a batch of another size may round otherwise.
    monkeypatch.setattr("bounds.influence.methods.exhaustive.batch_size", lambda *_: 2)
    flags = [f"--model={three_symbols}", f"--tokens={tokens_file}"]
    flags += ["--method=exhaustive", "--rounding=all"]
    run("influence", *flags)
    whole = Path("results/influence/influence.csv").read_text()
    monkeypatch.setattr(parts, "part_sizes", lambda *arguments: (2, 2))
    run("influence", *flags, "--fresh")
    assert Path("results/influence/influence.csv").read_text() == whole


@pytest.mark.parametrize("rounding", ["all", "top", "none"])
def test_the_command_gives_the_radii_that_are_asked_for(
    rounding, run, three_symbols, tokens_file, monkeypatch
):
    monkeypatch.setattr("bounds.influence.rounding.FEWEST", 4)
    monkeypatch.setattr("bounds.influence.rounding.BLOCK", 4)
    monkeypatch.setattr("bounds.influence.methods.exhaustive.batch_size", lambda *_: 4)
    flags = [f"--model={three_symbols}", f"--tokens={tokens_file}"]
    run("influence", *flags, "--method=exhaustive", f"--rounding={rounding}")
    model = jm.load(three_symbols)
    asked: dict[str, Any] = {"method": "exhaustive", "rounding": rounding}
    found: Any = bounds.compute_influence(model, TOKENS, **asked)
    record = read_json("influence")
    names = ("max", "max_lower", "max_upper", "kind", "rounding")
    assert [record[x] for x in names] == [getattr(found, x) for x in names]
    kinds = [row["kind"] for row in read_csv("influence")]
    known = {"all": len(kinds), "top": 4, "none": 0}[rounding]
    assert sum(kind != "estimated" for kind in kinds) == known
    assert found.enclosed.sum() == known


def test_a_maximum_that_nothing_moves_is_exactly_zero(run, model_file):
    """The first of causal rows sees no other position."""
    flags = [f"--model={model_file(mask='future')}", "--length=4", "--query=0"]
    result = run("influence", *flags, "--method=exhaustive")
    record = read_json("influence")
    assert record["max_lower"] == 0 == record["max_upper"]
    assert "maximum influence is 0, exact" in result.out
    assert (record["kind"], record["exact"]) == ("exact", True)


def test_where_pairs_are_many_only_the_largest_of_each_position_is_kept(
    run, three_symbols, tokens_file, monkeypatch
):
    arguments = ["influence", f"--model={three_symbols}", f"--tokens={tokens_file}"]
    run(*arguments)
    every = read_csv("influence")
    monkeypatch.setattr(parts, "MAX_PAIRS", 5)
    run(*arguments)
    rows = read_csv("influence")
    assert [int(row["position"]) for row in rows] == list(range(6))
    for row in rows:
        at = [one for one in every if one["position"] == row["position"]]
        assert row == max(at, key=lambda one: float(one["lower"]))


def test_the_record_identifies_model_and_input(run, three_symbols, tokens_file):
    run("influence", f"--model={three_symbols}", f"--tokens={tokens_file}")
    record = read_json("influence")
    assert (
        record["model_sha256"] == hashlib.sha256(three_symbols.read_bytes()).hexdigest()
    )
    tokens = np.array(TOKENS, "<i4")
    assert record["tokens_sha256"] == hashlib.sha256(tokens.tobytes()).hexdigest()
    assert (record["n"], record["dtype"], record["exact"]) == (7, "float64", True)
    assert (record["kind"], record["hypotheses"]) == ("exact", [ROUNDING])
    assert record["rtol_exact"] == 0.01
    assert record["seconds"] > 0
    assert record["method"] in ("incremental", "exhaustive")


def test_another_input_of_the_same_length_is_another_result(run, model_file, tmp_path):
    path, maxima = model_file(), []
    for tokens in ("0 1 0 1", "1 1 0 1"):
        (tmp_path / "tokens.txt").write_text(tokens)
        flags = [f"--model={path}", "--tokens=tokens.txt", *QUICK]
        run("influence", *flags)
        maxima.append(read_json("influence")["max"])
    assert len(read_store(OUT / "results.sqlite")) == 2
    assert maxima[0] != maxima[1]


def test_a_sampled_input_is_the_one_of_its_number(run, model_file):
    path = model_file()
    flags = [f"--model={path}", "--length=9", "--input=2", "--seed=4"]
    run("influence", *flags, *QUICK)
    tokens = sampled_inputs(jm.load(path), "parity", 3, seed=4).draw(9, 2)
    expected = hashlib.sha256(tokens.astype("<i4").tobytes()).hexdigest()
    assert read_json("influence")["tokens_sha256"] == expected


def test_an_array_file_holds_several_inputs(run, three_symbols, tmp_path):
    np.save(tmp_path / "tokens.npy", np.array([TOKENS, TOKENS[::-1]]))
    flags = [f"--model={three_symbols}", "--tokens=tokens.npy", *QUICK]
    run("influence", *flags, "--input=1")
    tokens = np.array(TOKENS[::-1], "<i4")
    found = read_json("influence")["tokens_sha256"]
    assert found == hashlib.sha256(tokens.tobytes()).hexdigest()
    run("influence", *flags, "--input=2").assert_refused("holds 2 inputs")


def test_a_text_is_read_through_the_vocabulary(run, tmp_path):
    (tmp_path / "text.txt").write_text("aabb\n")
    asked = ["influence", "--preset=anbn_one_layer", "--text=text.txt", *QUICK]
    result = run(*asked)
    assert (result.code, result.err) == (0, "")
    tokens = np.array([0, 0, 1, 1], "<i4")
    found = read_json("influence")["tokens_sha256"]
    assert found == hashlib.sha256(tokens.tobytes()).hexdigest()
    (tmp_path / "text.txt").write_text("aacb\n")
    run(*asked).assert_refused("'c' at position 2")


def test_one_token_has_nothing_to_substitute(run, model_file):
    result = run("influence", f"--model={model_file()}", "--length=1")
    assert (result.code, result.err) == (0, "")
    record = read_json("influence")
    assert (record["max_upper"], record["position"], record["n"]) == (0.0, None, 1)
    assert read_csv("influence") == []
    assert "nothing can be substituted" in result.out


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--query=8"], "query = 8"),
        (["--length=0"], "--length=0"),
        (["--input=-1"], "--input=-1"),
        (["--target=logits"], "read-out"),
        (["--num_inputs=2"], "num_inputs"),
        (["--weighting=leftmost_hard,softmax"], "--weighting"),
        (["--method=guess"], "--method=guess"),
    ],
)
def test_a_bad_flag_is_one_line(run, flags, complaint):
    result = run("influence", *SHAPE_FLAGS, "--length=8", *flags)
    result.assert_refused(complaint)
    assert not OUT.exists()


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


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--num_layers=2"], ["method: incremental (the cheapest", "memory: at most "]),
        (
            ["--method=exhaustive"],
            ["method: exhaustive (asked for)", "blocks: 2, of at most 32"],
        ),
        (["--num_devices=8"], ["8 of 8 devices", "blocks: 1, of at most "]),
        (
            ["--mask=none", "--position=none"],
            ["method: lumped", "lumped has none that can be told ahead"],
        ),
    ],
    ids=["incremental", "exhaustive", "devices", "lumped"],
)
def test_a_dry_run_says_what_it_would_do_and_writes_nothing(run, flags, told, tmp_path):
    shape = ["--length=40", "--d_model=4", "--num_heads=1", "--d_ff=4"]
    before = set(tmp_path.rglob("*"))
    result = run("influence", "--dry_run", *shape, *flags)
    assert (result.code, result.err) == (0, "")
    assert "; n = 40, query 39, activation\n" in result.out
    assert "substitutions: 39, in 1 parts" in result.out
    for words in told:
        assert words in result.out
    assert set(tmp_path.rglob("*")) == before
    assert not OUT.exists()


def test_a_dry_run_counts_the_blocks_of_all_parts(run, monkeypatch):
    monkeypatch.setattr(parts, "part_sizes", lambda *arguments: (16, 16))
    shape = ["--length=40", "--d_model=4", "--num_heads=1", "--d_ff=4"]
    out = run("influence", "--dry_run", *shape, "--method=exhaustive").out
    assert "substitutions: 39, in 3 parts of at most 16" in out
    assert "estimated cost: 39 forward passes" in out
    assert (
        "nothing can be substituted" in run("influence", "--dry_run", "--length=1").out
    )


def test_a_dry_run_refuses_what_the_run_would(run):
    flags = ["--dry_run", "--length=40", "--method=lumped"]
    result = run("influence", *flags)
    assert result.code == 1
    assert "cannot do this model" in result.err
    assert run("influence", "--dry_run", "--length=4", "--query=4").code == 1


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


@pytest.mark.parametrize(
    ("limit", "complaint"),
    [
        (
            "1KiB",
            "the memory limit is 1 KiB, but a block of one substitution takes about",
        ),
        ("5MB", "'5MB' is no amount of memory; expected bytes, or a number and one of"),
    ],
)
def test_a_memory_limit_that_cannot_be_kept_is_refused(run, limit, complaint):
    flags = ["--method=incremental", f"--memory_limit={limit}"]
    for more in ([], ["--dry_run"]):
        run("influence", *SHAPE_FLAGS, *flags, *more).assert_refused(complaint)

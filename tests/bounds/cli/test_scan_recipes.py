"""`scan --recipe` and its kin write what the functions of `bounds.recipes` return."""

from pathlib import Path

import numpy as np
import pytest

import bounds
import jax_models as jm
from tests.bounds.cli.outputs import NAMES, read_arrays, read_csv, read_json, tokens_of
from tests.compiled import programs

OUT = Path("results/scan")
LETTERS = "ACDEFG"
SYMBOLS = [NAMES.index(x) for x in LETTERS]
MASK = NAMES.index("[MASK]")
# Programs of JAX that copy an array, or a part of one.
COPIES = {"jit(stage)", "jit(dynamic_slice)"}
GIVEN = {"symbols": SYMBOLS, "positions": [1, 2, 3, 4]}
LINES = {
    "masked_marginals": "log-odds against the wild type, nats, by 4 substitutions,",
    "wild_type_marginals": "log-odds against the wild type, nats, by one pass of the",
    "dependency_map": "largest |Δ log-odds|, bits, by 20 substitutions,",
    "categorical_jacobian": "Frobenius norm of Δ logits, less its average product, nats,",
    "mutagenesis": "20 substitutions of logits,",
}
WATCHED = {
    "masked_marginals": "log-odds against the wild type, nats",
    "dependency_map": "largest |Δ log-odds|, bits",
    "categorical_jacobian": "Δ logits, nats",
    "mutagenesis": "logits",
}
RECIPES = dict.fromkeys(LINES, GIVEN) | {"masked_marginals": {**GIVEN, "mask": MASK}}


@pytest.fixture
def ask(run, folder):
    """Run `scan` on a sequence, with a few letters put in."""
    given = f"--model={folder}", "--sequence=ACDE", f"--symbols={','.join(LETTERS)}"
    return lambda *flags: run("scan", *given, *flags)


@pytest.fixture
def model(folder):
    return jm.from_pretrained(folder, dtype="float64")


@pytest.fixture
def two(tmp_path):
    """A file of two records."""
    path = tmp_path / "two.fasta"
    path.write_text(">first of two\nACDE\n>second\nGFACA\n")
    return path


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_writes_what_its_function_returns(name, ask, model):
    plan = ask(f"--recipe={name}", "--dry_run").out
    assert ("one pass" in plan) == (name == "wild_type_marginals")
    ended = ask(f"--recipe={name}", "--first_residue=25").done()
    shape = " x ".join(f"{n} {x}s" for x, n in read_json("scan")["shape"].items())
    if name != "wild_type_marginals":
        assert f"scan: {shape}\n" in plan
        assert f"scan.npz: {read_arrays()['values'].size} cells" in plan
        assert f"n = 6, {WATCHED[name]}\n" in plan
    named = {"A25", "C26", "D27", "E28"}
    if name in ("dependency_map", "categorical_jacobian"):
        assert {x["residue"] for x in read_csv("scan")} == named
        assert {x["row_residue"] for x in read_csv("scan")} == named
    else:
        assert {x["mutation"][:-1] for x in read_csv("scan")} == named
    assert f"n = 6: {LINES[name]}" in ended.out
    wanted = getattr(bounds.recipes, name)(model, tokens_of("ACDE"), **RECIPES[name])
    kept = read_arrays()
    np.testing.assert_allclose(kept["values"], wanted.values, 1e-12, 1e-12)
    assert tuple(kept["axes"]) == wanted.axes
    assert np.nanmax(np.abs(kept["values"])) > 0
    assert read_json("scan")["kind"] == wanted.kind
    if wanted.base is not None:
        np.testing.assert_allclose(kept["base"], wanted.base, 1e-12, 1e-12)
        assert all(row["base"] for row in read_csv("scan"))


@pytest.mark.parametrize(
    ("flags", "asked", "label"),
    [
        ("masked_marginals --unit=bits", {"unit": "bits", "mask": MASK}, "type, bits"),
        ("wild_type_marginals --unit=bits", {"unit": "bits"}, "wild type, bits"),
        (
            "dependency_map --unit=nats --epsilon=0.001",
            {"unit": "nats", "epsilon": 1e-3},
            "|Δ log-odds|, nats",
        ),
        (
            "categorical_jacobian --reduce=frobenius:map:left_out",
            {"reduce": bounds.Frobenius(symmetrize="map", wild_type="left_out")},
            "Frobenius norm of Δ logits",
        ),
    ],
)
def test_flags_choose_between_published_definitions(flags, asked, label, ask, model):
    name, *more = flags.split()
    ended = ask(f"--recipe={name}", *more).done()
    assert label in ended.out
    recipe = getattr(bounds.recipes, name)
    wanted = recipe(model, tokens_of("ACDE"), **GIVEN, **asked)
    np.testing.assert_allclose(read_arrays()["values"], wanted.values, 1e-12, 1e-12)
    mask = {"mask": MASK} if "mask" in asked else {}
    published = recipe(model, tokens_of("ACDE"), **GIVEN, **mask)
    assert np.nanmax(np.abs(published.values - wanted.values)) > 1e-6


def test_the_largest_are_printed_and_written_by_name(ask):
    ended = ask("--recipe=masked_marginals", "--top=3", "--first_residue=25").done()
    every = read_csv("scan")
    assert {row["mutation"][:-1] for row in every} == {"A25", "C26", "D27", "E28"}
    ranked = sorted(every, key=lambda row: -abs(float(row["value"])))[:3]
    top = (OUT / "top.csv").read_text().splitlines()
    assert [line.split(",")[-1] for line in top[1:]] == [x["mutation"] for x in ranked]
    for row in ranked:
        assert f"{float(row['value']):+.6g} {row['mutation']}" in ended.out
    assert ask("--recipe=masked_marginals").code == 0
    assert not (OUT / "top.csv").exists()


def test_records_of_a_file_share_one_table(run, folder, two, model):
    typed = [f"--model={folder}", f"--fasta={two}", "--recipe=wild_type_marginals"]
    ended = run("scan", *typed).done()
    assert "figures are of one record" in ended.out
    rows = read_csv("scan")
    assert {row["record"] for row in rows} == {"first", "second"}
    for name, text in (("first", "ACDE"), ("second", "GFACA")):
        wanted = bounds.recipes.wild_type_marginals(
            model, tokens_of(text), positions=range(1, 1 + len(text)), symbols=SYMBOLS
        )
        found = {
            (int(row["position"]), int(row["symbol"])): float(row["value"])
            for row in rows
            if row["record"] == name
        }
        for (i, s), value in np.ndenumerate(wanted.values):
            if not np.isnan(value):
                place = int(wanted.positions[i]), int(wanted.symbols[s])
                np.testing.assert_allclose(found[place], value, rtol=1e-12)
    assert not (OUT / "scan.npz").exists()
    assert run("scan", *typed, "--input=1", "--overwrite").code == 0
    assert {row["wild_type"] for row in read_csv("scan")} == set("GFAC")
    sweep = ["--command=scan", "--sweep=recipe=wild_type_marginals", *typed[:2]]
    assert run("batch", *sweep).code == 0
    assert [row["record"] for row in read_csv("batch")] == ["first", "second"]


def test_a_mask_stands_for_a_residue(run, folder):
    typed = [f"--model={folder}", "--sequence=A[MASK]DE", "--symbols=A,C"]
    typed += ["--recipe=wild_type_marginals", "--first_residue=25"]
    assert run("scan", *typed).code == 0
    assert {row["mutation"][:-1] for row in read_csv("scan")} == {"A25", "D27", "E28"}


def test_a_dry_run_names_the_records_and_no_file_that_is_not_written(run, folder, two):
    typed = [f"--model={folder}", f"--fasta={two}", "--dry_run", "--recipe"]
    plan = run("scan", *typed, "masked_marginals").out
    first, second = plan.partition("record second:")[::2]
    assert "record first:" in first
    assert "substitutions: 4," in first
    assert "substitutions: 5," in second
    assert "scan.npz" not in plan
    assert "scan.npz" in run("scan", *typed, "masked_marginals", "--input=0").out
    plan = run("scan", *typed, "wild_type_marginals").out
    assert plan == "one pass of each of 2 inputs\n"


def test_a_model_and_the_records_of_a_file_are_read_once(run, folder, two, monkeypatch):
    called = []

    def noting(plain):
        return lambda *given, **more: called.append(plain) or plain(*given, **more)

    for owner, name in ((jm, "from_pretrained"), (jm.Tokenizer, "encode_all")):
        monkeypatch.setattr(owner, name, noting(getattr(owner, name)))
    typed = [f"--model={folder}", f"--fasta={two}", "--recipe=wild_type_marginals"]
    assert run("scan", *typed).code == 0
    assert len(called) == len(set(called)) == 2


def test_deletions_are_those_of_the_function(run, folder, model):
    typed = [f"--model={folder}", "--sequence=ACDEF", "--edit=delete", "--rows=all"]
    for more in ([], ["--reduce=none", "--target=logits"]):
        for _ in range(2):  # the second from the store
            assert run("scan", *typed, *more).code == 0
        asked = {"reduce": "none", "target": "logits"} if more else {}
        wanted = bounds.recipes.deletions(
            model, tokens_of("ACDEF"), rows="all", positions=range(1, 6), **asked
        )
        np.testing.assert_allclose(read_arrays()["values"], wanted.values, 1e-12, 1e-12)
        assert np.isnan(read_arrays()["values"]).any()
    assert {row["symbol"] for row in read_csv("scan")} == {""}


def test_records_of_one_bucket_share_compiled_programs(run, folder, tmp_path):
    def compiled(*records):
        path = tmp_path / "records.fasta"
        path.write_text("".join(f">{x}\n{x}\n" for x in records))
        typed = [f"--model={folder}", f"--fasta={path}", "--recipe=masked_marginals"]
        return set(programs(lambda: run("scan", *typed, "--fresh"))) - COPIES

    text = "ACDEFGHIKLMN" * 3
    block = "jit(base_outputs)"
    assert block in compiled(text[:19])  # with its special tokens 21, a bucket's length
    assert compiled(text[1:19], text[1:18], text[1:20]) == set()
    assert block in compiled(text[1:19], text[:21])

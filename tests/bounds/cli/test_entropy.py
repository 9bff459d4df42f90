"""`entropy` writes levels, floors and a model's cross-entropy, once, and says which."""

from pathlib import Path

import pytest

import jax_models as jm
from bounds.entropy import entropy_levels, measure_entropy
from jax_models.languages import get_source
from tests.bounds.cli.outputs import read_csv, read_json

HEAD = "n,optimal,unigram,last_symbol,floor_r1,floor_r2,eps,model,model_stderr,p0"


@pytest.mark.parametrize("language", ["parity", "dyck2"])
def test_without_a_model_the_levels_stand_alone(run, language):
    result = run(
        "entropy", f"--language={language}", "--p=0.4", "--lengths=1,2,9,64"
    ).done()
    rows, record = read_csv("entropy"), read_json("entropy")
    header = Path("results/entropy/entropy.csv").read_text().splitlines()[0]
    assert header.startswith(HEAD)
    source = get_source(language, 0.4)
    assert [row["n"] for row in rows] == ["1", "2", "9", "64"]
    for row, entry in zip(rows, record["rows"], strict=True):
        wanted = entropy_levels(source, int(row["n"]))
        for name, value in wanted.items():
            if isinstance(value, float):
                assert float(row[name]) == entry[name] == value
        assert row["model"] == row["model_stderr"] == ""
        assert row["eps"] == "0.0"
        values = [float(row[x]) for x in ("optimal", "last_symbol", "unigram")]
        assert values == sorted(values)
    assert (rows[0]["p0"] == "") == (language == "parity")
    assert Path("results/entropy/entropy.png").stat().st_size > 1000
    assert "has no influence" in result.out
    assert record["seed"] is None
    assert {"versions", "device", "flags"} <= record.keys()


def test_a_model_stands_above_its_floor(run, parity_file):
    arguments = ["entropy", f"--model={parity_file}", "--lengths=3", "--reading=query"]
    run(*arguments).done()
    (row,), record = read_csv("entropy"), read_json("entropy")
    source = get_source("parity", 0.25)
    found = measure_entropy(jm.load(parity_file), source, 3, reading="query")
    assert float(row["model"]) == pytest.approx(found.cross_entropy, rel=1e-14)
    assert float(row["floor_r2"]) == pytest.approx(found.floor.value, rel=1e-14)
    assert float(row["floor_r2"]) < float(row["model"])
    assert row["floor_r1"] == ""
    assert [row[x] for x in ("eps_kind", "floor_kind")] == ["exact", "exact"]
    assert len(record["model_sha256"]) == 64
    # Another question about the same model.
    other = run(*arguments, "--eps=closed_form")
    (certified,) = read_csv("entropy")
    assert certified["floor_kind"] == "certified"
    assert float(certified["eps"]) > float(row["eps"])
    assert float(certified["floor_r2"]) < float(row["floor_r2"])
    assert "certified" in other.out


def test_a_model_without_a_read_out_is_one_line_of_the_commands_own(run, model_file):
    ended = run("entropy", "--lengths=4", f"--model={model_file()}")
    ended.assert_refused("no read-out")
    assert "target" not in ended.err


def test_a_model_of_another_language_is_one_line(run, parity_file):
    ended = run("entropy", "--language=dyck2", f"--model={parity_file}")
    ended.assert_refused("the read-out has 3 classes; dyck2 needs 5")

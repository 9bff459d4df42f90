"""`curve` measures what the definition says, once, and says what it found."""

import csv
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import jax_models as jm
from bounds import read_store
from bounds.curves.inputs import sampled_inputs
from jax_models.model.reweight import with_temperature, with_weighting
from tests.bounds.cli.shape import SHAPE_FLAGS

LENGTHS = [4, 8]
NONE = "--bounds=none"  # where the exact influence is what is tested
TINY = [*SHAPE_FLAGS, "--lengths=4,8", "--num_inputs=2", NONE]
# For what does not depend on the method: one weighting, and what compiles fastest.
QUICK = [*TINY, "--weighting=softmax", "--method=exhaustive"]
LABELS = ["leftmost_hard", "average_hard", "softmax", "softmax@inverse_log:1"]


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def read_json(path):
    # NaN and infinity are no JSON, though Python would read them.
    return json.loads(Path(path).read_text(), parse_constant=pytest.fail)


def influences(model, tokens):
    """Returns the influence of flipping each bit but the last, by the definition."""
    base = np.asarray(jm.apply(model, tokens))[-1]
    found = []
    for position in range(len(tokens) - 1):
        other = tokens.copy()
        other[position] = 1 - other[position]
        found.append(np.linalg.norm(np.asarray(jm.apply(model, other))[-1] - base))
    return found


def reweighted(model, label):
    weighting, _, temperature = label.partition("@")
    model = with_weighting(model, weighting)
    if not temperature:
        return model
    return with_temperature(model, jm.InverseLogTemperature(1.0))


def test_the_main_job_measures_four_weightings_of_one_model(run, make_model):
    result = run("curve", *TINY, "--seed=5")
    assert (result.code, result.err) == (0, "")
    rows = read_csv("results/curve/curve.csv")
    assert len(rows) == len(LABELS) * len(LENGTHS) * 2
    base = make_model(key=5, mask="future", position="sinusoidal", scale=0.5)
    for row in rows:
        model = reweighted(base, row["weighting"])
        source = sampled_inputs(model, "parity", 2, seed=5)
        expected = influences(model, source.draw(int(row["n"]), int(row["input"])))
        lower, upper = float(row["influence_lower"]), float(row["influence_upper"])
        largest = max(expected)
        assert lower <= upper
        assert lower == pytest.approx(largest, rel=1e-9, abs=1e-12)
        assert upper == pytest.approx(largest, rel=1e-9, abs=1e-12)
        assert expected[int(row["position"])] == pytest.approx(largest, abs=1e-12)
        assert (row["exact"] == "true") == (upper - lower <= 0.02 * largest)
    assert [row["weighting"] for row in rows[::4]] == LABELS


def test_the_report_has_a_table_and_a_sentence_per_weighting(run):
    result = run("curve", *TINY)
    rows = read_csv("results/curve/curve.csv")
    record = read_json("results/curve/curve.json")
    assert [curve["weighting"] for curve in record["curves"]] == LABELS
    # On a slow machine lines of progress begin with numbers too.
    lines = [x for x in result.out.splitlines() if " measurements" not in x]
    (header,) = [line for line in lines if line.split() == ["n", *LABELS]]
    for n in LENGTHS:
        (line,) = [line for line in lines if line.split()[:1] == [str(n)]]
        for label, cell in zip(LABELS, line.split()[1:], strict=True):
            largest = max(
                float(row["influence_upper"])
                for row in rows
                if (row["n"], row["weighting"]) == (str(n), label)
            )
            assert float(cell) == pytest.approx(largest, rel=1e-3, abs=1e-12)
    for curve in record["curves"]:
        told = curve["fit"]["exponent"] is not None or not curve["fit"]["used"]
        assert (curve["finding"] in lines) == told  # the table tells of few lengths
        assert curve["finding"].startswith(curve["weighting"] + ": ")
    assert header
    assert record["flags"]["seed"] == record["seed"] == 0
    assert record["flags"]["lengths"] == LENGTHS
    assert {"jax", "attention-bounds"} <= set(record["versions"])
    assert record["device"].startswith("cpu")


def test_bounds_stand_beside_the_exact_influence_in_their_order(run):
    bounded = [*QUICK, "--bounds=certified,closed_forms", "--extend_to=200"]
    run("curve", *QUICK)
    # Four certificates, one per input, and five closed forms: three of longer lengths.
    result = run("curve", *bounded)
    assert "9 of 13 measurements to make" in result.out
    for row in read_csv("results/curve/curve.csv"):
        exact, certified = float(row["influence_lower"]), float(row["certified"])
        corrected, printed = (
            float(row[name]) for name in ("log10_corrected", "log10_printed")
        )
        assert exact <= certified
        assert np.log10(certified) <= corrected <= printed
        assert row["estimate"] == ""
    assert "corrected, log10" in result.out
    assert "0 of 13" in run("curve", *bounded).out


def test_hard_attention_stands_alone_and_says_why(run):
    result = run("curve", *TINY, "--weighting=leftmost_hard", "--bounds=certified")
    assert "leftmost_hard: no certified: a hard weighting jumps" in result.out
    (curve,) = read_json("results/curve/curve.json")["curves"]
    assert len(curve["without"]) == 1
    assert {row["certified"] for row in read_csv("results/curve/curve.csv")} == {""}


@pytest.mark.parametrize(
    "asked", [["--weighting=average_hard"], ["--weighting=softmax", "--lengths=1,2"]]
)
def test_a_bound_that_has_no_value_is_kept_with_its_reason_and_read(run, asked):
    typed = ["curve", *TINY[:-1], "--method=exhaustive", *asked, "--bounds=estimate"]
    first = run(*typed)
    assert first.code == run(*typed).code
    assert "damaged" not in first.err
    (curve,) = read_json("results/curve/curve.json")["curves"]
    assert any("estimate" in said for said in curve["without"])


def test_what_is_computed_is_not_computed_again(run):
    run("curve", *QUICK)
    before = read_store("results/curve/results.sqlite")
    first = Path("results/curve/curve.csv").read_text()
    result = run("curve", *QUICK)
    assert "0 of 4 measurements to make" in result.out
    assert read_store("results/curve/results.sqlite") == before
    assert Path("results/curve/curve.csv").read_text() == first


def test_more_lengths_and_inputs_keep_the_old_results(run):
    run("curve", *QUICK)
    more = [*QUICK, "--lengths=4,8,9", "--num_inputs=3"]
    assert "5 of 9 measurements to make" in run("curve", *more).out


@pytest.mark.parametrize(
    "flag",
    [
        "--seed=1",
        "--query=0",
        *(
            pytest.param(x, marks=pytest.mark.slow)
            for x in ("--dtype=float32", "--d_ff=5")
        ),
    ],
)
def test_another_question_is_another_result(run, flag):
    run("curve", *QUICK)
    result = run("curve", *QUICK, flag)
    assert "4 of 4 measurements to make" in result.out


@pytest.mark.usefixtures("quick_compilation")
def test_other_inputs_of_the_same_length_and_number_are_other_results(run, tmp_path):
    arguments = [*SHAPE_FLAGS, "--lengths=4", "--tokens=tokens.txt", "--vocab_size=2"]
    arguments += ["--weighting=softmax", "--method=exhaustive", "--bounds=certified"]
    found = []
    # Not one another's largest substitution, whose influence is the same both ways.
    for tokens, todo in (("0 1 0 1", 2), ("1 0 1 1", 2), ("0 1 0 1", 0)):
        (tmp_path / "tokens.txt").write_text(tokens)
        result = run("curve", *arguments)
        # The influence, and the certificate beside it.
        assert f"{todo} of 2 measurements to make" in result.out
        (row,) = read_csv("results/curve/curve.csv")
        found.append((row["influence_upper"], row["certified"]))
    assert found[0] == found[2]
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_the_sizes_of_blocks_are_part_of_a_measurement(run):
    shape = [*TINY, "--weighting=softmax", "--method=incremental"]
    counts = []
    for limit in ([], ["--memory_limit=300GiB"], ["--memory_limit=256KiB"]):
        assert run("curve", *shape, *limit).code == 0
        counts.append(len(read_store("results/curve/results.sqlite")))
    # A limit that leaves them as they are changes nothing.
    assert counts == [4, 4, 8]


def test_fresh_computes_everything_again(run):
    arguments = ["curve", NONE, *QUICK]
    run(*arguments)
    before = read_store("results/curve/results.sqlite").column("finished")
    assert "4 of 4 measurements to make" in run(*arguments, "--fresh").out
    after = read_store("results/curve/results.sqlite").column("finished")
    assert len(after) == 4
    assert not set(before) & set(after)


def test_a_file_is_measured_with_its_own_weighting_unless_others_are_named(
    run, model_file
):
    path = model_file(weighting="average_hard", mask="past")
    run("curve", f"--model={path}", NONE, "--lengths=4", "--num_inputs=1")
    (row,) = read_csv("results/curve/curve.csv")
    assert row["weighting"] == "average_hard"
    options = ["--weighting=leftmost_hard,softmax", "--temperature=2,inverse_log:1"]
    run("curve", f"--model={path}", NONE, "--lengths=4", "--num_inputs=1", *options)
    assert [row["weighting"] for row in read_csv("results/curve/curve.csv")] == [
        "leftmost_hard@2",
        "softmax@2",
        "softmax@inverse_log:1",
    ]


def test_a_construction_is_measured_on_strings_with_its_query_token(run):
    result = run(
        "curve", "--preset=parity", NONE, "--target=logits", "--lengths=4,8,16,32"
    )
    assert (result.code, result.err) == (0, "")
    # Every bit of every string has the influence 4 tanh(c) / N^2 (Chiang & Cholak).
    for row in read_csv("results/curve/curve.csv"):
        expected = 4 * np.tanh(1.0) / int(row["n"]) ** 2
        assert float(row["influence_upper"]) == pytest.approx(expected, rel=1e-10)
        assert row["symbol"] in ("0", "1")
    record = read_json("results/curve/curve.json")
    assert record["curves"][0]["fit"]["exponent"] == pytest.approx(2.0, abs=1e-9)


def test_figures_are_drawn_in_every_format_asked_for(run):
    arguments = ["curve", NONE, *QUICK, "--out=a"]
    run(*arguments, "--figure_format=svg,pdf,png")
    for suffix in ("svg", "pdf", "png"):
        assert Path(f"a/curve.{suffix}").read_bytes()


def test_a_model_whose_influence_is_zero_everywhere_is_reported(
    run, tmp_path, make_model
):
    model = make_model()
    blind = jax.tree.map(np.zeros_like, model)
    jm.save(blind, tmp_path / "blind.safetensors")
    result = run("curve", "--model=blind.safetensors", NONE, "--lengths=4,8")
    assert (result.code, result.err) == (0, "")
    assert "no symbol changes the output; all 16 influences are zero" in result.out


def test_one_token_has_no_influence(run):
    result = run("curve", *SHAPE_FLAGS, "--lengths=1,2", NONE, "--weighting=softmax")
    assert (result.code, result.err) == (0, "")
    rows = read_csv("results/curve/curve.csv")
    assert {float(row["influence_upper"]) for row in rows if row["n"] == "1"} == {0.0}


def test_an_ambiguous_tie_fails_its_measurement_alone(run, model_file):
    # Cells as wide as the scores' own spread leave neighbours everywhere.
    path = model_file(weighting="leftmost_hard", tie_resolution=0.05)
    arguments = ["curve", NONE, f"--model={path}", "--lengths=1,32", "--num_inputs=1"]
    result = run(*arguments)
    result.assert_refused("1 of 2 measurements failed and are left out; the first, ")
    assert "n = 32, input 0" in result.err
    assert [row["n"] for row in read_csv("results/curve/curve.csv")] == ["1"]
    (failed,) = [
        row for row in read_store("results/curve/results.sqlite") if row["message"]
    ]
    assert failed["status"] == "failed"
    result = run(*arguments, "--ties=warn")
    assert result.code == 0
    assert result.err.startswith("warning: in 1 results rounding decided")
    assert [row["ambiguous"] for row in read_csv("results/curve/curve.csv")] == [
        "false",
        "true",
    ]


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--lengths=0,4"], "--lengths=0,4"),
        (["--lengths=8,4"], "4 follows 8"),
        (["--query=4"], "query"),
        (["--query=-5"], "query"),
        (["--weighting=softmax,hard"], "'hard' is not one of softmax"),
        (["--temperature=1,warm"], "'warm' is not a temperature"),
        (["--temperature="], "name at least one"),
        (["--temperature=1,2,3,4,5,6,7,8"], "at most 7"),
        (["--bounds=none,certified"], "none stands alone"),
        (["--figure_format=gif"], "'gif' is not one of png, pdf, svg"),
        (["--language=dyck2", "--vocab_size=2"], "vocab_size >= 4"),
        (["--language=dyck1", "--lengths=5"], "odd"),
        (["--target=logits"], "read-out"),
        (["--num_heads=3"], "num_heads = 3 does not divide"),
        (["--preset=parity"], "--num_layers describes a random model"),
        (["--c=2"], "--c is the sharpness of a construction"),
        (["--model=m", "--preset=random"], "not both"),
        (["--model=missing.safetensors"], "missing.safetensors"),
        (["--tokens=missing.txt"], "missing.txt"),
        (["--text=missing.txt"], "missing.txt"),
        (["--tokens=a", "--text=b"], "not both"),
    ],
)
def test_a_bad_input_is_one_line_and_computes_nothing(run, tmp_path, flags, complaint):
    result = run("curve", *SHAPE_FLAGS, "--lengths=4", *flags)
    result.assert_refused(complaint)
    assert result.out == ""
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--preset=nothing"], "unknown preset 'nothing'; known are random, parity"),
        (["--preset=anbn", "--c=2"], "takes no 'c'"),
        (["--preset=parity", "--c=-1"], "c"),
        (["--preset=parity", "--language=dyck2"], "4 symbols"),
    ],
)
def test_a_bad_construction_is_one_line(run, flags, complaint):
    run("curve", "--lengths=4", *flags).assert_refused(complaint)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("0 1 2 1", "token 2 at position 2"),
        ("0 -1 1", "token -1 at position 1"),
        ("0 1 one", "'one' at position 2 is not a token"),
        ("", "no tokens"),
        ("0 1 1", "n = 4 is more than the 3 tokens"),
        ("0 99999999999999999999", "is not a token"),
        ("0 4294967296 1 0", "token 4294967296 at position 1"),
    ],
)
def test_bad_tokens_are_one_line_with_their_place(run, tmp_path, content, complaint):
    (tmp_path / "tokens.txt").write_text(content)
    flags = ["--lengths=4", "--tokens=tokens.txt", "--vocab_size=2"]
    run("curve", *SHAPE_FLAGS, *flags).assert_refused(complaint)


def test_a_length_beyond_the_position_table_is_one_line(run, model_file):
    path = model_file(position="table", max_length=6)
    result = run("curve", f"--model={path}", NONE, "--lengths=4,8")
    result.assert_refused("8")
    assert "6 rows" in result.err


def test_an_unwritable_folder_is_one_line(run, tmp_path):
    (tmp_path / "file").write_text("in the way")
    result = run("curve", *TINY, "--out=file/results")
    result.assert_refused("file")


def test_a_store_in_use_is_one_line(run, monkeypatch):
    from bounds.store.results import ResultStore

    monkeypatch.setitem(ResultStore.__init__.__kwdefaults__, "wait_seconds", 0.1)
    with ResultStore("results/curve/results.sqlite"):
        run("curve", *TINY).assert_refused("in use by another run")

"""`curve` measures what the definition says, once, and says what it found."""

from pathlib import Path

import jax
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds import bound_curve, closed_form_bounds, read_store
from bounds.curves.columns import CURVE_BOUNDS, CurveBound, CurveColumn
from bounds.curves.inputs import sampled_inputs
from bounds.curves.measurement import measure
from bounds.store.results import ResultStore
from jax_models.model.reweight import with_temperature, with_weighting
from tests.bounds.cli.outputs import FILES, SHAPE_FLAGS, read_csv, read_json
from tests.written import written

LENGTHS = [4, 8]
NONE = "--bounds=none"  # where the exact influence is what is tested
TINY = [*SHAPE_FLAGS, "--lengths=4,8", "--num_inputs=2", NONE]
SHORT = [*SHAPE_FLAGS, "--lengths=4", "--num_inputs=2", "--weighting=softmax"]
# For what does not depend on the method: one weighting, and what compiles fastest.
QUICK = [*TINY, "--weighting=softmax", "--method=exhaustive"]
LABELS = ["leftmost_hard", "average_hard", "softmax", "softmax@inverse_log:1"]


def reweighted(model, label):
    weighting, _, temperature = label.partition("@")
    model = with_weighting(model, weighting)
    if not temperature:
        return model
    return with_temperature(model, jm.InverseLogTemperature(1.0))


def test_the_main_job_measures_four_weightings_of_one_model(run, make_model):
    run("curve", *TINY, "--lengths=4", "--seed=5").done()
    rows = read_csv("curve")
    assert len(rows) == len(LABELS) * 2
    base = make_model(key=5, mask="future", position="sinusoidal", scale=0.5)
    for row in rows:
        model = reweighted(base, row["weighting"])
        source = sampled_inputs(model, "parity", 2, seed=5)
        tokens = source.draw(int(row["n"]), int(row["input"]))
        expected = reference.influence(*written(model), tokens)[:-1]
        lower, upper = float(row["influence_lower"]), float(row["influence_upper"])
        largest = np.nanmax(expected)
        assert lower <= upper
        assert lower == pytest.approx(largest, rel=1e-9, abs=1e-12)
        assert upper == pytest.approx(largest, rel=1e-9, abs=1e-12)
        found = expected[int(row["position"]), int(row["symbol"])]
        assert found == pytest.approx(largest, abs=1e-12)
        assert (row["exact"] == "true") == (upper - lower <= 0.02 * largest)
    assert [row["weighting"] for row in rows[::2]] == LABELS


def test_the_report_has_a_table_and_a_sentence_per_weighting(run):
    names = ["softmax", "average_hard"]
    result = run("curve", *QUICK, f"--weighting={','.join(names)}")
    rows = read_csv("curve")
    record = read_json("curve")
    assert [curve["weighting"] for curve in record["curves"]] == names
    # On a slow machine lines of progress begin with numbers too.
    lines = [x for x in result.out.splitlines() if " measurements" not in x]
    (header,) = [line for line in lines if line.split() == ["n", *names]]
    for n in LENGTHS:
        (line,) = [line for line in lines if line.split()[:1] == [str(n)]]
        for label, cell in zip(names, line.split()[1:], strict=True):
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
    short = [*SHORT, "--method=exhaustive"]
    bounded = [*short, "--bounds=certified,closed_forms", "--extend_to=200"]
    run("curve", *short, NONE)
    # Two certificates, one per input, and four closed forms: three of longer lengths.
    result = run("curve", *bounded)
    assert "6 of 8 measurements to compute" in result.out
    for row in read_csv("curve"):
        names = ("influence_lower", "certified", "log10_corrected", "log10_printed")
        exact, certified, corrected, printed = (float(row[x]) for x in names)
        assert exact <= certified
        assert np.log10(certified) <= corrected <= printed
        assert row["estimate"] == ""
    assert "corrected, log10" in result.out
    assert "0 of 8" in run("curve", *bounded).out


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ("leftmost_hard --bounds=certified", "no certified: a hard weighting jumps"),
        ("average_hard --bounds=estimate", "no estimate: "),
        ("softmax --lengths=1 --bounds=estimate", "no estimate: "),
    ],
)
def test_a_bound_that_has_no_value_is_kept_with_its_reason_and_read(run, asked, why):
    weighting, *flags = asked.split()
    typed = ["curve", *SHORT, "--method=exhaustive", f"--weighting={weighting}", *flags]
    first = run(*typed)
    assert first.code == run(*typed).code
    assert "damaged" not in first.err
    assert f"{weighting}: {why}" in first.out
    (curve,) = read_json("curve")["curves"]
    assert len(curve["without"]) == 1
    assert {row["certified"] + row["estimate"] for row in read_csv("curve")} == {""}


# What is asked after a first run, and how much of it is made.
AGAIN = {
    "": "0 of 4",
    "--lengths=4,8,9 --num_inputs=3": "5 of 9",
    "--seed=1": "4 of 4",
    "--query=0": "4 of 4",
    "--dtype=float32": "4 of 4",
    "--d_ff=5": "4 of 4",
}


def test_what_is_computed_is_not_computed_again(run):
    run("curve", *QUICK)
    before = read_store("results/curve/results.sqlite")
    first = read_csv("curve")
    for flags, count in AGAIN.items():
        result = run("curve", *QUICK, *flags.split())
        assert f"{count} measurements to compute" in result.out
        if not flags:
            assert read_store("results/curve/results.sqlite") == before
            assert read_csv("curve") == first


def test_other_inputs_of_the_same_length_and_number_are_other_results(run, tmp_path):
    arguments = [*SHAPE_FLAGS, "--lengths=4", "--tokens=tokens.txt", "--vocab_size=2"]
    arguments += ["--weighting=softmax", "--method=exhaustive", "--bounds=certified"]
    found = []
    # Not one another's largest substitution, whose influence is the same both ways.
    for tokens, todo in (("0 1 0 1", 2), ("1 0 1 1", 2), ("0 1 0 1", 0)):
        (tmp_path / "tokens.txt").write_text(tokens)
        result = run("curve", *arguments)
        # The influence, and the certificate beside it.
        assert f"{todo} of 2 measurements to compute" in result.out
        (row,) = read_csv("curve")
        found.append((row["influence_upper"], row["certified"]))
    assert found[0] == found[2]
    assert found[0][0] != found[1][0]
    assert found[0][1] != found[1][1]


def test_the_sizes_of_blocks_are_part_of_a_measurement(run):
    shape = [*SHORT, NONE, "--method=incremental"]
    counts = []
    for limit in ([], ["--memory_limit=300GiB"], ["--memory_limit=256KiB"]):
        assert run("curve", *shape, *limit).code == 0
        counts.append(len(read_store("results/curve/results.sqlite")))
    # A limit that leaves them as they are changes nothing.
    assert counts == [2, 2, 4]


def test_a_file_is_measured_with_its_own_weighting_unless_others_are_named(
    run, model_file
):
    path = model_file(weighting="average_hard", mask="past")
    asked = ["curve", f"--model={path}", NONE, "--lengths=4", "--num_inputs=1"]
    others = ["--weighting=leftmost_hard,softmax", "--temperature=2,inverse_log:1"]
    several = ["leftmost_hard@2", "softmax@2", "softmax@inverse_log:1"]
    for more, labels in (([], ["average_hard"]), (others, several)):
        run(*asked, *more)
        assert [row["weighting"] for row in read_csv("curve")] == labels


def test_a_construction_is_measured_on_strings_with_its_query_token(run):
    asked = ["--preset=parity", "--target=logits", "--method=exhaustive"]
    run("curve", *asked, NONE, "--lengths=4,8,16,32", "--num_inputs=2").done()
    # Every bit of every string has the influence 4 tanh(c) / N^2 (Chiang & Cholak).
    for row in read_csv("curve"):
        expected = 4 * np.tanh(1.0) / int(row["n"]) ** 2
        assert float(row["influence_upper"]) == pytest.approx(expected, rel=1e-10)
        assert row["symbol"] in ("0", "1")
    record = read_json("curve")
    assert record["curves"][0]["fit"]["exponent"] == pytest.approx(2.0, abs=1e-9)


def test_a_model_whose_influence_is_zero_everywhere_is_reported_and_drawn(
    run, tmp_path, make_model
):
    blind = jax.tree.map(np.zeros_like, make_model())
    jm.save(blind, tmp_path / "blind.safetensors")
    flags = ["--model=blind.safetensors", NONE, "--figure_format=svg,pdf,png"]
    result = run("curve", *flags, "--lengths=4,8").done()
    assert "no symbol changes the output; all 16 influences are zero" in result.out
    for suffix in ("svg", "pdf", "png"):
        assert Path(f"results/curve/curve.{suffix}").read_bytes()


def test_an_ambiguous_tie_fails_its_measurement_alone(run, model_file):
    # Cells as wide as the scores' own spread leave neighbours everywhere.
    path = model_file(weighting="leftmost_hard", tie_resolution=0.05)
    arguments = ["curve", NONE, f"--model={path}", "--lengths=1,32", "--num_inputs=1"]
    result = run(*arguments)
    result.assert_refused("1 of 2 measurements failed and are left out; the first, ")
    assert "n = 32, input 0" in result.err
    assert [row["n"] for row in read_csv("curve")] == ["1"]
    store = read_store("results/curve/results.sqlite")
    assert [row["status"] for row in store if row["message"]] == ["failed"]
    result = run(*arguments, "--ties=warn")
    assert result.code == 0
    assert result.err.startswith("warning: in 1 results rounding decided")
    assert [row["ambiguous"] for row in read_csv("curve")] == ["false", "true"]


def test_a_length_beyond_the_position_table_is_one_line(run, model_file):
    path = model_file(position="table", max_length=6)
    run("curve", f"--model={path}", NONE, "--lengths=4,8").assert_refused("6 rows")


def test_a_store_in_use_is_one_line(run, monkeypatch):
    monkeypatch.setitem(ResultStore.__init__.__kwdefaults__, "wait_seconds", 0.1)
    with ResultStore("results/curve/results.sqlite"):
        run("curve", *TINY).assert_refused("in use by another run")


ASKED = [*SHAPE_FLAGS, "--lengths=4", "--weighting=softmax", "--method=exhaustive"]


def test_a_new_bound_reaches_print_csv_and_figure_as_one_record(run, monkeypatch):
    def twice(model, tokens, question, seed):
        return {"twice": 2 * measure(model, tokens, question)["influence_upper"]}

    look = {"linestyle": "none", "marker": "d"}
    column = CurveColumn("twice", "twice it", "twice the influence", look)
    kind = CurveBound("doubled", "twice the influence", (column,), True, twice)
    monkeypatch.setitem(CURVE_BOUNDS, "doubled", kind)
    monkeypatch.setitem(FILES["curve.csv"], "twice", "twice the influence")
    result = run("curve", *ASKED, "--bounds=doubled", "--figure_format=svg").done()
    _, beside = result.out.split("of them: twice the influence for that input:\n")
    heading, first = beside.splitlines()[:2]
    assert heading.endswith("exact  twice it")
    exact, doubled = map(float, first.split()[-2:])
    assert doubled == pytest.approx(2 * exact, rel=1e-3)
    for row in read_csv("curve"):
        assert float(row["twice"]) == 2 * float(row["influence_upper"])
    assert "twice the influence" in Path("results/curve/curve.svg").read_text()


def test_a_curve_asked_for_in_python_goes_on_with_the_commands_store(run, model_file):
    path = model_file()
    asked = ["--lengths=4", "--num_inputs=2", "--bounds=closed_forms"]
    run("curve", f"--model={path}", *asked, "--method=exhaustive", "--seed=3")
    with ResultStore("results/curve/results.sqlite") as store:
        count = len(store.table())
        asked = {"inputs": "parity", "num_inputs": 2, "seed": 3, "store": store}
        asked |= {"method": "exhaustive", "bounds": ["closed_forms"]}
        curve = bound_curve(jm.load(path), [4], **asked)
        assert len(store.table()) == count == 2 + 1
    found = [float(row["influence_upper"]) for row in read_csv("curve")]
    assert found == list(curve.measurements.column("influence_upper"))


def test_constants_go_on_beyond_the_lengths_that_are_measured(run, make_model):
    flags = [*ASKED, "--num_inputs=1", "--bounds=closed_forms"]
    result = run("curve", *flags)
    (curve,) = read_json("curve")["curves"]
    assert [row["n"] for row in curve["beyond"]] == [10**k for k in range(1, 7)]
    model = make_model(key=0, mask="future", position="sinusoidal", scale=0.5)
    for row in curve["beyond"][:2]:
        forms = closed_form_bounds(model, row["n"])
        assert row["log10_corrected"] == forms.corrected.others.log10_value
        assert row["log10_printed"] == forms.printed.others.log10_value
    assert [row["n"] for row in curve["largest"]] == [4]
    said = " ".join(result.out.split())
    assert "from about there the corrected constant falls, to 10^" in said
    # A table has no rows beyond; nothing is said of lengths that were not asked for.
    run("curve", *flags, "--position=table", "--extend_to=20", "--out=table").done()
    (curve,) = read_json("table/curve.json")["curves"]
    assert (curve["beyond"], curve["without"]) == ([], [])


def test_a_file_s_constants_end_with_its_lengths_unless_more_is_asked(run, model_file):
    path = model_file(mask="none", position=None)
    flags = [f"--model={path}", "--lengths=4", "--num_inputs=1", "--method=exhaustive"]
    flags += ["--bounds=closed_forms"]
    for more, beyond in (([], []), (["--extend_to=50"], [10, 50])):
        assert run("curve", *flags, *more).code == 0
        (curve,) = read_json("curve")["curves"]
        assert [row["n"] for row in curve["beyond"]] == beyond

"""The constants of a curve go on beyond the lengths that are measured."""

from bounds import closed_form_bounds
from tests.bounds.cli.outputs import SHAPE_FLAGS, read_json

QUICK = [*SHAPE_FLAGS, "--lengths=4", "--num_inputs=1", "--weighting=softmax"]
QUICK += ["--method=exhaustive"]


def test_constants_go_on_beyond_the_lengths_that_are_measured(run, make_model):
    flags = [*QUICK, "--bounds=closed_forms"]
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
    table = run("curve", *flags, "--position=table", "--extend_to=20", "--out=table")
    assert (table.code, table.err) == (0, "")
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

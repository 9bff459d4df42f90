"""`curve` fits lengths up to those that a model was trained on apart from longer ones."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import jax_models as jm
from bounds import bound_curve
from bounds.curves import cells
from bounds.curves.measurement import block_columns
from jax_models.model.position import longest_length
from tests.bounds.cli.outputs import SHAPE_FLAGS, TRAIN, read_json

pytestmark = pytest.mark.usefixtures("no_figures")

LENGTHS = [4, 6, 8, 12, 16, 24, 32, 48]
ASKED = [*SHAPE_FLAGS, "--weighting=softmax", "--bounds=none", "--num_inputs=1"]
ASKED += [f"--lengths={','.join(map(str, LENGTHS))}", "--method=exhaustive"]
MODEL = Path("results/train/model.safetensors")
SHORT = ["--lengths=3", "--bounds=none", "--num_inputs=1", "--method=exhaustive"]


@pytest.fixture(autouse=True)
def planted(monkeypatch):
    """Plants influences that fall about as 1/n, in place of those that compile."""

    def measure(model, tokens, question, choice, checkpoint):
        n = len(tokens)
        value = np.exp(np.cos(n) / 9) / n
        ends = {"influence_lower": value, "influence_upper": value}
        found = {"position": 0, "symbol": 1, "method": "exhaustive", "ambiguous": False}
        found |= {"exact": True, "kind": "exact", **block_columns(choice.sizes)}
        return {**ends, **found}

    monkeypatch.setattr(cells, "measure", measure)


def curve_record():
    (curve,) = read_json("curve")["curves"]
    return curve


def test_both_sides_are_fitted_apart_and_marked(run, make_model):
    result = run("curve", *ASKED, "--trained_to=12").done()
    lines = result.out.splitlines()
    (mark,) = [k for k, line in enumerate(lines) if "- trained to n = 12 -" in line]
    assert [lines[k].split()[0] for k in (mark - 1, mark + 1)] == ["12", "16"]
    record = curve_record()
    found = bound_curve(
        make_model(mask="future", position="sinusoidal", scale=0.5),
        LENGTHS,
        inputs="parity",
        method="exhaustive",
        trained_to=12,
    )
    assert record["trained_to"] == found.trained_to == 12
    fits = [record["fit"], *record["beyond_training"]]
    names, lengths = ("n up to 12", "n beyond 12"), (LENGTHS[:4], LENGTHS[4:])
    for name, fit, side, part in zip(names, fits, found.sides, lengths, strict=True):
        assert list(side.column("n")) == part
        values = side.column("influence_upper")
        slope, _ = np.polyfit(np.log(part), np.log(values), 1)
        assert fit["exponent"] == pytest.approx(-slope, rel=1e-6)
        assert fit["exponent"] == pytest.approx(side.fit.exponent, rel=1e-6)
        (said,) = [line for line in lines if f", {name}: the influence " in line]
        assert f"n = {part[0]} to {part[-1]}." in said
        assert "95% interval" in said
        assert said in record["finding"]
    assert f"{found!r}".endswith(" to n = 12)")


@pytest.mark.parametrize(("end", "name"), [(2, "up to 2"), (99, "beyond 99")])
def test_a_side_without_a_length_is_said_to_have_none(run, end, name):
    result = run("curve", *ASKED, f"--trained_to={end}").done()
    assert f", n {name}: nothing was measured." in result.out
    record = curve_record()
    counts = record["fit"]["lengths"], record["beyond_training"][0]["lengths"]
    assert sorted(counts) == [0, len(LENGTHS)]


@pytest.mark.parametrize(("reading", "end"), [("last", 4), ("query", 5)])
def test_what_train_records_is_the_default(run, reading, end):
    train = ["--lengths=3", "--num_inputs=2", f"--reading={reading}"]
    assert run("train", *TRAIN.split(), *train).code == 0
    record = read_json("train")
    assert record["trained_to"] == end
    asked = ["curve", f"--model={MODEL}", *SHORT]
    assert run(*asked).code == 0
    assert curve_record()["trained_to"] == end
    assert run(*asked, "--trained_to=2").code == 0
    assert curve_record()["trained_to"] == 2


ANOTHER = '{"trained_to": 3, "model_sha256": "of another"}'


# Training data may have this name too, and is no record.
@pytest.mark.parametrize(
    ("said", "end"),
    [
        ('{"trained_to": 3}', 3),
        (ANOTHER, None),
        *(("{", None), ('[{"text": "a"}]', None), ('{"text": "a"}\n{}', None)),
        ("{}", None),
    ],
)
def test_a_record_beside_a_checkpoint_is_read(run, folder, said, end):
    (folder / "train.json").write_text(said)
    ended = run("curve", f"--model={folder}", *SHORT)
    assert ended.code == 0
    assert ("is of another model" in ended.err) == (said == ANOTHER)
    assert curve_record()["trained_to"] == end


def test_a_record_without_a_length_is_one_line(run, folder):
    (folder / "train.json").write_text('{"trained_to": "far"}')
    run("curve", f"--model={folder}", *SHORT).assert_refused("trained_to of ")


def test_lengths_by_default_are_those_of_the_position_table(run, folder):
    (folder / "vocab.txt").unlink()
    asked = ["--bounds=none", "--num_inputs=1", "--method=exhaustive"]
    ended = run("curve", f"--model={folder}", *asked)
    assert ended.code == 0
    rows = longest_length(jm.from_pretrained(folder).position)
    assert f"n = 16 to {rows};" in ended.out
    assert "special ones are drawn and put in too" in ended.err
    assert len(curve_record()["intervals_95"]) == 1


def test_a_figure_marks_the_length(make_model):
    found = bound_curve(make_model(), [4, 8], method="exhaustive")
    (axes,) = dataclasses.replace(found, trained_to=6).plot().axes
    assert "trained to n = 6" in [text.get_text() for text in axes.texts]
    assert [6, 6] in [list(line.get_xdata()) for line in axes.lines]
    (far,) = dataclasses.replace(found, trained_to=100).plot().axes
    assert far.get_xlim()[1] < 100
    (plain,) = found.plot().axes
    assert not any("trained" in text.get_text() for text in plain.texts)

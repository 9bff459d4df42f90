"""`simulate` writes temperatures, bounds and errors, for hard models only."""

import math
from pathlib import Path

import pytest

import bounds
import jax_models as jm
from bounds.figures.curves import simulation_figure
from bounds.simulation import simulate
from bounds.simulation.compute import COLUMNS
from tests.bounds.cli.outputs import SHAPE_FLAGS, read_csv, read_json
from tests.bounds.simulation.test_simulate import ones_error

AT = ["--preset=ones", "--lengths=3,4"]
REQUIRED = (
    "n,gap,tau_formula,tau_certificate,epsilon,error_formula,error_certificate,ties"
)


def test_the_error_at_a_temperature_is_certified(run):
    assert run("simulate", *AT, "--at=inverse_log:0.1").code == 0
    for row in read_csv("simulate"):
        n, tau = int(row["n"]), float(row["tau_at"])
        assert tau == pytest.approx(0.1 / math.log(n), rel=1e-15)
        found = simulate(jm.build_preset("ones", dtype="float64"), n)
        assert float(row["bound_at"]) == found.certify(tau)
        with pytest.raises(jm.InputError, match=r"temperature = 0.0; expected a pos"):
            found.certify(0.0)


def test_the_files_hold_what_simulate_finds(run):
    flags = ["--preset=ones", "--lengths=3", "--epsilon=0.05", "--figure_format=png"]
    result = run("simulate", *flags).done()
    text = Path("results/simulate/simulate.csv").read_text()
    assert text.startswith(REQUIRED)
    (row,) = read_csv("simulate")
    assert tuple(row) == COLUMNS
    assert row["tau_at"] == row["bound_at"] == ""
    found = simulate(jm.build_preset("ones", dtype="float64"), 3, epsilon=0.05)
    assert float(row["gap"]) == found.gap
    assert float(row["tau_certificate"]) == found.temperature
    assert float(row["tau_formula"]) == found.theorem_temperature.value
    assert float(row["error_certificate"]) == found.error_certificate <= 0.05
    assert int(row["ties"]) == found.ties > 0
    assert row["all_inputs"] == "true"
    record = read_json("simulate")
    (entry,) = record["rows"]
    assert entry["bound_certificate"] == found.bound
    assert len(entry["temperatures"]) == len(entry["errors"]) == len(entry["bounds"])
    assert all(
        error <= bound + 1e-12
        for error, bound in zip(entry["errors"], entry["bounds"], strict=True)
    )
    assert "tie-breaking term" in result.out
    assert "certified there" not in result.out
    assert Path("results/simulate/simulate.png").stat().st_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 2])
def test_beyond_the_budget_inputs_are_sampled(run, monkeypatch, layers):
    monkeypatch.setattr("bounds.cli.simulate.BUDGET", 2)
    few = [*SHAPE_FLAGS, "--mask=none", "--num_inputs=2", "--lengths=4"]
    out = run("simulate", *few, f"--num_layers={layers}").out
    # One layer is known over all inputs without listing them, two are not.
    some = ("errors are the largest of", "certified for")[layers - 1]
    assert f"{some} 2 sampled inputs (random)" in out


def test_a_preset_is_tried_on_its_own_language_and_says_on_how_much(run):
    """On 1^59 0, among them, the odds against the 0 are e^(-1/(60 tau))."""
    flags = ["--preset=ones", "--lengths=60"]
    out, (row,) = run("simulate", *flags).out, read_json("simulate")["rows"]
    expected = ones_error(60, row["tau_certificate"])
    assert row["error_certificate"] == pytest.approx(expected, rel=1e-9)
    assert row["measured_on"] == "16 sampled inputs"
    assert "error is the largest of" in out
    assert "16 sampled inputs (ones and one-symbol neighbours)" in out
    assert read_csv("simulate")[0]["measured_on"] == "16 sampled inputs"
    (label,) = [text.get_text() for text in simulation_figure([row]).legends[0].texts]
    assert label == "n = 60, gap 1: largest of 16 sampled inputs"
    # Random bits, where the flag names them, hold no such input, and are called so.
    out = run("simulate", *flags, "--language=parity").out
    (row,) = read_json("simulate")["rows"]
    assert row["error_certificate"] < 1e-100
    assert "16 sampled inputs (parity)" in out


def test_a_model_without_a_language_is_tried_on_random_strings(run, monkeypatch):
    monkeypatch.setattr("bounds.cli.simulate.BUDGET", 1)
    flags = ["--preset=first", "--weighting=leftmost_hard", "--lengths=4"]
    found = run("simulate", *flags, "--num_inputs=2").done()
    assert "2 sampled inputs (random)" in found.out


def test_a_curve_has_a_row_per_length():
    model = jm.build_preset("average_parity", dtype="float64")
    curve = bounds.simulation_curve(model, [2])
    assert curve.column("n").tolist() == [2]
    assert len(curve) == 1
    assert [row["ties"] for row in curve] == [0]
    with pytest.raises(jm.InputError, match="lengths must increase"):
        bounds.simulation_curve(model, [4, 2])

"""What is stated holds where rounding is hardest, in both float types."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from benchmarks import radii
from benchmarks.exact_values import exact_values
from benchmarks.published_parity import bit_influence, published_parity
from benchmarks.radii import measure_model, moved_radii
from benchmarks.radii_families import DRAWN, FORMULAS, LENGTH
from bounds.influence import compute_influence, request
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.propagation import change_block
from bounds.influence.scan import scan
from jax_models.weighting import Softmax
from jax_models.weighting.base import NARROW
from tests.architecture import with_attention
from tests.bounds.influence.models import build, scaled_weights

TYPES = ("float32", "float64")
C = 1 / np.sqrt(5)


def config(family, dtype, drawn=0, layers=1):
    shape = {"family": family, "dtype": dtype, "layers": layers, "n": LENGTH}
    return {**shape, "drawn": drawn, "seed": 0}


def outside(row):
    return sum(radii.of_methods(row, "moved_outside"))


# Families, numbers of drawn models, and layers.
CASES = [
    *((family, drawn, 1) for family in DRAWN for drawn in range(4)),
    *((family, 0, 2) for family in ("offset", "dominant", "leaving")),
    # What equal top columns leave of the others is 6.5e-18, computed as 0 in float32.
    ("peaked", 11, 1),
    # Almost all columns have one value, and what others add is far below rounding.
    *(("formula", k + n, None) for k in (0, 1) for n in (0, len(FORMULAS))),
]


# Of changes, how much of a radius their error is at most; elsewhere all of it.
WELL_INSIDE = {
    # A second such key at a gap of 20 and 40, where the values of both are 0.
    ("dominant", 1): 0.1,
    # Scores that share an offset round by far more than the values do.
    ("offset", 2): 0.2,
    **{("formula", drawn): 0.5 for family, drawn, _ in CASES if family == "formula"},
}


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("family", "drawn", "layers"), CASES)
def test_the_truth_is_inside(family, drawn, layers, dtype):
    row = measure_model(config(family, dtype, drawn, layers))
    assert outside(row) == 0
    assert row["incremental_moved_of_radius"] <= WELL_INSIDE.get((family, drawn), 1)
    if layers == 1:
        assert row["incremental_pairs"] == 3 * (LENGTH - 1)
    if (family, drawn) in {*WELL_INSIDE, ("peaked", 11)}:
        assert row["influence"] > 0


@pytest.mark.parametrize("dtype", TYPES)
def test_the_truth_is_inside_where_values_are_wide(dtype):
    """A formula's heads with coordinates more that are 0: the same function."""
    formula = config("formula", dtype, drawn=1, layers=None)
    asked = radii.build(formula)

    def widen(attention):
        heads, width, _ = attention.value.shape
        more = NARROW + 1 - width
        value = jnp.pad(attention.value, ((0, 0), (0, more), (0, 0)))
        output = attention.output.reshape(-1, heads, width)
        output = jnp.pad(output, ((0, 0), (0, 0), (0, more))).reshape(len(output), -1)
        return {"value": value, "output": output}

    model = with_attention(asked.model, widen)
    wide = dataclasses.replace(asked, model=model)
    exact = exact_values(asked, radii.digits(formula))
    found = moved_radii(wide, INCREMENTAL)
    for truth, influence, radius in zip(exact, *found, strict=True):
        assert abs(truth - float(influence)) <= 0.5 * radius


def test_the_rest_is_summed_apart_from_the_top_column(monkeypatch):
    """Otherwise a formula's changes lose half their digits."""
    asked = config("formula", "float64", drawn=4, layers=None)
    truth = radii.true_values(asked, radii.build(asked)).astype(float)

    def error():
        found = radii.found_by(INCREMENTAL, radii.build(asked))
        return (np.abs(found - truth) / truth).max()

    assert error() < 1e-14
    monkeypatch.setattr(Softmax, "lift_all", Softmax.lift)
    program: Any = change_block.prepare  # which has it in its trace
    program.clear_cache()
    lost = error()
    program.clear_cache()
    assert lost > 1e-8


def test_a_change_that_underflows_is_not_called_zero(monkeypatch):
    asked = config("underflow", "float64", drawn=1)
    assert outside(measure_model(asked)) == 0
    monkeypatch.setattr(
        request, "reached", lambda *a: np.zeros((a[3].size, a[2].size), bool)
    )
    assert measure_model(asked)["incremental_moved_outside"] > 0


@pytest.mark.parametrize("dtype", TYPES)
def test_published_parity_keeps_its_digits(dtype):
    """Every bit has one influence; its error is in the radius, which is no wider."""
    bits, model = 64, published_parity(C, dtype)
    truth = bit_influence(float(np.asarray(C, dtype)), bits)
    for tokens in (np.ones(bits, int), np.arange(bits) % 2):
        found = compute_influence(
            model,
            np.append(tokens, 2),
            method="incremental",
            target="logits",
            rounding="all",
        )
        lower, upper = (x[:bits] for x in (found.position_lower, found.position_upper))
        assert (lower <= truth).all()
        assert (truth <= upper).all()
        goal = 2e-11 if dtype == "float64" else 1e-2
        assert np.abs((lower + upper) / 2 - truth).max() <= goal * truth
        assert (upper - lower).max() <= 2 * 30 * goal * truth


TOKENS = np.random.default_rng(0).integers(0, 3, 6)


def absorbed(**case) -> Any:
    """What heads write is far below a rounding of the rows that it is added to."""
    model = build({"num_layers": 1, "mask": "none", "num_classes": 3, **case})
    return scaled_weights(model, output=1e-19, output_bias=0.0, w2=0.0, b2=0.0)


@pytest.mark.parametrize("method", ["exhaustive", "partial"])
@pytest.mark.parametrize(
    "case", [{}, {"weighting": "average_hard"}], ids=["softmax", "hard"]
)
def test_differences_of_outputs_enclose_what_they_lose(case, method):
    model = absorbed(**case)
    truth: Any = bounds.compute_influence(model, TOKENS, method="incremental")
    found: Any = bounds.compute_influence(model, TOKENS, method=method)
    assert truth.max > 0
    assert found.max == 0
    there = ~np.isnan(truth.lower)
    assert (truth.upper <= found.upper)[there].all()
    assert found.kind == "enclosure"


@pytest.mark.parametrize("reduce", [None, "none", "max", "mean"])
def test_scans_enclose_it_whatever_is_made_of_them(reduce):
    found = scan(absorbed(), TOKENS, rows=[5], reduce=reduce, method="exhaustive")
    others = ~np.isnan(found.values) & (found.values == 0)
    assert others.any()
    assert (found.upper[others] > 0).all()


def test_the_supremum_is_not_taken_for_an_error_of_passes():
    model = dataclasses.replace(absorbed(), position=None)
    assert 0 < bounds.supremum(model, 4).max < 1e-17


def test_what_masks_keep_away_is_exactly_zero_however_radii_are_asked_for():
    model = build({"num_layers": 1, "mask": "future"})
    for reduce in (None, "none", "max"):
        asked: dict[str, Any] = {"rows": [2], "reduce": reduce, "positions": [1, 4]}
        for rounding in ("all", "none"):
            found = scan(model, TOKENS, rounding=rounding, **asked)
            last = found.values[1]
            there = ~np.isnan(last)
            assert (last[there] == 0).all()
            assert (found.upper[1][there] == 0).all()
            assert found.enclosed[1][there].all()

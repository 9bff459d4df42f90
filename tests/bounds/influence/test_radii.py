"""What is stated holds where rounding is hardest, in both float types."""

import dataclasses
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import radii
from benchmarks.accuracy import computed, exact_values
from benchmarks.published_parity import bit_influence, published_parity
from benchmarks.radii import measure
from benchmarks.radii_families import DRAWN, FORMULAS, LENGTH
from bounds.influence import (
    change_block,
    compute_influence,
    exhaustive,
    incremental,
    substitution,
)
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.sizes import score_rounding
from jax_models.model.mask import MASKS, SIGHTS, visible
from jax_models.model.scores import SCORES
from jax_models.weighting import Softmax
from jax_models.weighting.base import NARROW

pytestmark = pytest.mark.usefixtures("quick_compilation")
TYPES = ("float32", "float64")
C = 1 / np.sqrt(5)


def config(family, dtype, drawn=0, layers=1):
    shape = {"family": family, "dtype": dtype, "layers": layers, "n": LENGTH}
    return {**shape, "drawn": drawn, "seed": 0}


def outside(row, radii_by="stated"):
    return sum(radii.of_methods(row, f"{radii_by}_outside"))


@pytest.mark.parametrize("drawn", range(4))
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("family", DRAWN)
def test_the_truth_is_inside(family, dtype, drawn):
    row = measure(config(family, dtype, drawn))
    assert row["incremental_pairs"] == 3 * (LENGTH - 1)
    assert outside(row) == outside(row, "moved") == 0


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    "family",
    [
        "offset",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("dominant", "leaving")),
    ],
)
def test_the_truth_is_inside_with_two_layers(family, dtype):
    assert outside(measure(config(family, dtype, layers=2))) == 0


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("drawn", [0, 1])
def test_the_truth_is_inside_of_compiled_formulas(drawn, dtype):
    """Where almost all columns have one value, what others add is far below rounding."""
    for again in range(2):
        row = measure(config("formula", dtype, drawn + again * len(FORMULAS), None))
        assert outside(row) == 0
        assert row["incremental_stated_of_radius"] < 0.5


@pytest.mark.parametrize("dtype", TYPES)
def test_the_truth_is_inside_where_values_are_wide(dtype):
    """A formula's heads with coordinates more that are 0: the same function."""
    formula = config("formula", dtype, drawn=1, layers=None)
    problem = radii.build(formula)
    layers = []
    for layer in problem.model.layers:
        attention = layer.attention
        heads, width, _ = attention.value.shape
        more = NARROW + 1 - width
        value = jnp.pad(attention.value, ((0, 0), (0, more), (0, 0)))
        output = attention.output.reshape(-1, heads, width)
        output = jnp.pad(output, ((0, 0), (0, 0), (0, more))).reshape(len(output), -1)
        attention = dataclasses.replace(attention, value=value, output=output)
        layers.append(dataclasses.replace(layer, attention=attention))
    model = dataclasses.replace(problem.model, layers=tuple(layers))
    wide = dataclasses.replace(problem, model=model)
    exact = exact_values(problem, radii.digits(formula))
    found: Any = computed(INCREMENTAL, wide)
    for truth, influence, radius in zip(exact, found[0], found[1], strict=True):
        assert abs(truth - float(influence)) <= 0.5 * radius


def test_the_rest_is_summed_apart_from_the_top_column(monkeypatch):
    """Otherwise the change of a formula is off by many thousands of its radii."""
    asked = config("formula", "float64", drawn=4, layers=None)
    monkeypatch.setattr(Softmax, "settle", lambda _, summary, fold: summary)
    program: Any = change_block.prepare  # which has it in its trace
    program.clear_cache()
    row = measure(asked)
    program.clear_cache()
    assert row["incremental_stated_of_radius"] > 1e5


def test_what_equal_top_columns_absorb_is_not_called_zero():
    """What they leave of the others is 6.5e-18, computed as 0."""
    row = measure(config("peaked", "float32", drawn=11))
    assert row["influence"] > 0
    assert outside(row) == 0


@pytest.mark.parametrize("dtype", TYPES)
def test_what_a_dominant_column_leaves_keeps_its_digits(dtype):
    """A second such key at a gap of 20 and 40, where the values of both are 0."""
    row = measure(config("dominant", dtype, drawn=1))
    assert row["influence"] > 0
    assert row["incremental_stated_of_radius"] < 0.1


def test_a_change_that_underflows_is_not_called_zero(monkeypatch):
    """The oracle notices where it is."""
    asked = config("underflow", "float64", drawn=1)
    assert outside(measure(asked)) == 0
    monkeypatch.setattr(incremental, "may_move", lambda *a: np.zeros(a[3].shape, bool))
    assert measure(asked)["incremental_stated_outside"] > 0


@pytest.mark.parametrize("dtype", TYPES)
def test_scores_that_share_an_offset_round_relative_to_it(dtype, monkeypatch):
    """By far more than the radius without it; and are rid of it where it is exact."""
    asked = config("offset", dtype, drawn=2)
    row = measure(asked)
    assert outside(row) == 0
    assert row["incremental_stated_of_radius"] < 0.2
    monkeypatch.setattr(exhaustive, "score_rounding", lambda _, q, *__: 0 * q.max())
    program: Any = exhaustive.base_outputs  # which has it in its trace
    program.clear_cache()
    found = measure(asked)
    program.clear_cache()
    assert found["exhaustive_stated_outside"] > 0
    assert found["exhaustive_stated_of_radius"] > 3


@pytest.mark.parametrize("dtype", TYPES)
def test_published_parity_keeps_its_digits(dtype):
    """Every bit has one influence; its error is in the radius, which is no wider."""
    bits, model = 256, published_parity(C, dtype)
    truth = bit_influence(float(np.asarray(C, dtype)), bits)
    drawn = np.random.default_rng(0).integers(0, 2, bits)
    for tokens in (drawn, np.ones(bits, int), 0 * drawn, np.arange(bits) % 2):
        found = compute_influence(
            model, np.append(tokens, 2), method="incremental", target="logits"
        )
        lower, upper = (x[:bits] for x in (found.position_lower, found.position_upper))
        assert (lower <= truth).all()
        assert (truth <= upper).all()
        goal = 2e-11 if dtype == "float64" else 1e-2
        assert np.abs((lower + upper) / 2 - truth).max() <= goal * truth
        assert (upper - lower).max() <= 2 * 30 * goal * truth


def test_scores_are_off_by_what_is_said_of_them():
    """Eight sums side by side, one of which loses all its terms but the first."""
    width, eps = 512, float(np.finfo(np.float32).eps)
    attention: Any = types.SimpleNamespace(
        key_width=width,
        scoring=SCORES["dot_product"],
        placing_steps=0,
        rotary=None,
        distance_bias=None,
    )
    keys = np.full(width, 0.45 * eps, np.float32)
    keys[0] = 1
    sums = np.zeros(8, np.float32)
    for terms in keys.reshape(-1, 8):
        sums += terms
    off = keys.astype(np.float64).sum() - sums.sum(dtype=np.float64)
    keys = jnp.asarray(keys)[None, None]
    units = score_rounding(attention, jnp.ones_like(keys), keys, 1.0, 2)
    assert 20 * eps < off <= float(units) * eps / 2


def test_what_the_masks_keep_from_the_query_does_not_move():
    """Against the masks' visibility, followed layer by layer."""
    everywhere = jnp.arange(5)
    for below in MASKS:
        for above in MASKS:
            sees = [
                np.asarray(visible(SIGHTS[mask], everywhere, everywhere))
                | np.eye(5, dtype=bool)
                for mask in (below, above)
            ]
            truth = sees[1].astype(int) @ sees[0].astype(int) > 0
            for query in range(5):
                first, last = substitution.reaching(
                    [SIGHTS[below], SIGHTS[above]], 5, query
                )
                inside = (first <= np.arange(5)) & (np.arange(5) <= last)
                assert 0 <= first <= query <= last < 5
                assert (inside >= truth[query]).all()
                if not any("strict" in mask for mask in (below, above)):
                    assert (inside == truth[query]).all()

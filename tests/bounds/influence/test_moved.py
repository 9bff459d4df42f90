"""No influence is off by more than what moved inputs say of it, and errors are noticed."""

import dataclasses
import itertools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
from benchmarks import radii, radii_attacks
from benchmarks.radii import moved_radii
from benchmarks.radii_attacks import SMALL
from benchmarks.radii_families import BUILT, DRAWN
from bounds.influence import moved
from bounds.influence.build import build_request
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.methods.exhaustive import EXHAUSTIVE
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.methods.lumped import LUMPED
from bounds.rounding.moved_inputs import move_alike
from bounds.rounding.radii import usual_radii
from tests.bounds.influence.expect import refused
from tests.bounds.influence.models import build

# Two layers of one shape, so that they share a program.
ALIKE = ("opposed heads", "nearly equal", "row offset", "sink", "large")
SEEDS = range(10)


def config(family, drawn, dtype="float32", layers=2):
    return {
        "family": family,
        "drawn": drawn,
        "dtype": dtype,
        "layers": layers,
        "seed": 0,
    }


def question(family, drawn, **options):
    return radii.build(config(family, drawn, **options))


def shares(asked, method, truth):
    """Errors as shares of the radii, and radii as shares of the influences."""
    values, radius = moved_radii(asked, method)
    found = np.where(values > 0, values, np.inf)
    return np.abs(values - truth) / radius, radius / found


def truth_of(asked):
    return radii.found_by(INCREMENTAL, radii.doubled(asked))


def long_positions():
    """Sinusoidal positions of 16,384 tokens, rounded once."""
    model = radii_attacks._random(config("plain", 0), num_layers=1)
    tokens = np.random.default_rng(0).integers(0, model.vocab_size, 16_384)
    return build_request(model, tokens, positions=[0, 1, 5000, 16_000, 16_382])


@pytest.mark.slow
def test_a_thousand_seeded_pairs_are_inside():
    asked = [question(*x) for x in itertools.product(ALIKE, SEEDS)]
    asked += [question("underflow (left out)", x) for x in SEEDS] + [long_positions()]
    found = [shares(x, INCREMENTAL, truth_of(x))[0] for x in asked]
    assert sum(x.size for x in found) >= 1000
    assert max(x.max() for x in found) < 0.5


@pytest.mark.parametrize(("layers", "drawn"), [(3, 10), (1, 11)])
def test_large_scores_of_classes_round_anew_in_every_run(layers, drawn):
    """Errors of 0.57 of a radius without logarithms relative to the top score, and 0.42
    where keys and values of classes stay."""
    asked = question("large", drawn, layers=layers)
    assert shares(asked, LUMPED, truth_of(asked))[0].max() < 0.1


@pytest.mark.parametrize("family", [x for x in SMALL if x not in (*DRAWN, *BUILT)])
def test_changes_and_differences_are_inside_on_every_attack(monkeypatch, family):
    """Those of `radii_families` are in `test_radii`."""
    monkeypatch.setattr(radii, "METHODS", (INCREMENTAL, EXHAUSTIVE))
    layers = radii.LAYERS.get(family, (None,))[0]
    row = radii.measure_model(config(family, 1, "float64", layers))
    assert sum(radii.of_methods(row, "moved_outside")) == 0
    assert max(radii.of_methods(row, "moved_of_radius")) < 0.5


def test_what_a_scan_makes_of_a_table_is_inside():
    row = radii.measure_model(config("maps", 5, layers=1))
    assert sum(radii.of_methods(row, "moved_outside")) == 0
    assert max(radii.of_methods(row, "moved_of_radius")) < 0.5


def test_nearly_equal_symbols_are_known_to_their_last_digits(monkeypatch):
    """Embeddings that moved entry by entry would make radii of them far wider."""
    asked = question("nearly equal", 1)
    truth = truth_of(asked)
    assert shares(asked, INCREMENTAL, truth)[1].max() < 5e-3
    plain = moved.moved_request

    def every_weight(request, run):
        model = move_alike(request.model, run)
        return dataclasses.replace(plain(request, run), model=model)

    monkeypatch.setattr(moved, "moved_request", every_weight)
    assert shares(asked, INCREMENTAL, truth)[1].max() > 1


def test_what_a_norm_takes_away_is_seen_where_rows_move(monkeypatch):
    """Three influences are off by some hundred thousand of what a moved base pass tells."""
    asked = question("norm offset", 1, dtype="float64", layers=None)
    truth = radii.true_values(config("norm offset", 1, "float64", None), asked)
    truth = truth.astype(np.float64)
    for method in (INCREMENTAL, EXHAUSTIVE):
        assert shares(asked, method, truth)[0].max() < 0.5
    plain = moved.moved_request

    def nothing_inside(request, run):
        return dataclasses.replace(plain(request, run), run=0)

    monkeypatch.setattr(moved, "moved_request", nothing_inside)
    assert shares(asked, INCREMENTAL, truth)[0].max() > 100


def test_weights_alone_do_not_tell_what_keys_share(monkeypatch):
    """Neither rows that are formed nor the base pass moved: scores round alike in all."""
    asked = question("row offset", 1, dtype="float64", layers=None)
    truth = radii.true_values(config("row offset", 1, "float64", None), asked)
    truth = truth.astype(np.float64)
    assert shares(asked, EXHAUSTIVE, truth)[0].max() < 0.5
    plain = moved.moved_request

    def weights(request, run):
        return dataclasses.replace(plain(request, run), shared=SharedBase(), run=0)

    monkeypatch.setattr(moved, "moved_request", weights)
    assert shares(asked, EXHAUSTIVE, truth)[0].max() > 1


@pytest.mark.parametrize("method", [INCREMENTAL, EXHAUSTIVE], ids=lambda x: x.name)
def test_the_same_radii_in_any_order(method):
    asked = question("sink", 0)
    values, found = moved_radii(asked, method)
    order = np.random.default_rng(0).permutation(len(asked.pairs))
    turned = dataclasses.replace(asked, pairs=asked.pairs.only(order))
    other, radius = moved_radii(turned, method)
    np.testing.assert_array_equal(other, values[order])
    np.testing.assert_array_equal(radius, found[order])


@pytest.mark.parametrize("planted", ["farthest", "usual_radii"])
def test_runs_that_do_not_count_are_noticed(monkeypatch, planted):
    asked = question("plain", 1)
    truth = truth_of(asked)
    share, wide = (x.max() for x in shares(asked, INCREMENTAL, truth))
    assert share < 0.05
    assert wide < 5e-3
    wrong: Any = {
        "farthest": lambda shape, moves: 0 * sum(moves),
        "usual_radii": lambda *given, **options: usual_radii(*given, **options) / 50,
    }
    monkeypatch.setattr(f"bounds.influence.moved.{planted}", wrong[planted])
    assert shares(asked, INCREMENTAL, truth)[0].max() > 4 * share


@pytest.mark.parametrize("method", [INCREMENTAL, EXHAUSTIVE], ids=lambda x: x.name)
def test_what_nothing_reads_has_no_radius(method):
    asked = question("features", 4)  # a window of three tokens, under a mask
    values, found = moved_radii(asked, method)
    still = ~asked.reached()
    assert still.any()
    assert (values[still] == 0).all()
    assert (found[still] == 0).all()
    assert (found[~still] > 0).all()


def test_programs_that_move_leave_nothing_in_the_traces_of_others():
    """Whatever is traced apart inside them is kept for programs of any run and length."""
    model = build({"num_layers": 1, "head": "tied"})
    for length in (3, 4, 3):
        tokens = np.arange(length) % 3
        asked = build_request(model, tokens, target="logits")
        plain = radii.found_by(EXHAUSTIVE, asked)
        values, _ = moved_radii(asked, EXHAUSTIVE)
        np.testing.assert_allclose(values, plain, rtol=1e-4)


V, N = 3, 12
TOKENS = np.random.default_rng(0).integers(0, V, N)


def wrap(apply, params, **options) -> bounds.Callable:
    return bounds.Callable(
        apply, params, batched=False, vocab_size=V, check=False, **options
    )


TERMS = np.random.default_rng(3).normal(size=(V, 400)).astype(np.float32)


def summed(table, tokens) -> Any:
    """One thing at a time, in float32: a hundred roundings of large numbers."""
    total: Any = np.float32(0) if isinstance(table, np.ndarray) else jnp.float32(0)
    for term in range(TERMS.shape[1] // 8):
        total = total + table[tokens, term].sum() * np.float32(100)
    return total[None] if total.ndim == 0 else total


@pytest.mark.parametrize("host", [False, True])
def test_parameters_that_move_tell_how_far_a_function_rounds(host):
    model = wrap(summed, TERMS, host=host)
    found: Any = bounds.compute_influence(model, TOKENS, include_query=True)
    exact = TERMS[:, : TERMS.shape[1] // 8].astype(np.float64).sum(axis=1) * 100
    truth = np.abs(exact - exact[TOKENS][:, None])
    there = found.enclosed
    assert (found.rounding, there.sum()) == ("all", N * (V - 1))
    assert (found.lower[there] <= truth[there]).all()
    assert (truth[there] <= found.upper[there]).all()
    off = np.abs((found.lower + found.upper) / 2 - truth)[there]
    assert 0 < off.max() < (found.upper - found.lower)[there].max() < 0.1 * found.max


def test_a_function_that_says_another_thing_again_stays_estimated():
    noise = np.random.default_rng(0)
    model = wrap(
        lambda table, tokens: table[tokens, :4].sum(axis=0) + noise.normal(size=4),
        TERMS,
        host=True,
    )
    assert bounds.compute_influence(model, TOKENS).kind == "estimated"
    with refused("rounding = 'all', but the function says another thing"):
        bounds.compute_influence(model, TOKENS, rounding="all")
    plain = wrap(lambda _, tokens: jnp.ones(2), None)
    with refused("rounding = 'top', but the function has no array of parameters"):
        bounds.compute_influence(plain, TOKENS, rounding="top")
    stated = wrap(lambda _, tokens: jnp.ones(2), None, radius=1e-12)
    with refused("a radius of every evaluation is stated"):
        bounds.compute_influence(stated, TOKENS, rounding="all")

"""Scans are their definition over forward passes, in every mask, head and reduction."""

import functools
from typing import Any

import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds.influence import LogProbability, LogProbabilitySum
from bounds.influence.propagation import change_block
from bounds.influence.scan import Frobenius, scan
from bounds.influence.table.frobenius import _norms
from bounds.numbers.kind import ROUNDING
from tests.bounds.influence.expect import encloses, refused
from tests.bounds.influence.models import TOKENS, build
from tests.written import written

pytestmark = pytest.mark.usefixtures("small_tiles")
INPUT = TOKENS[:6]
N, V = 6, 3
MODELS: dict[str, dict[str, Any]] = {
    "one layer": {"num_layers": 1, "mask": "future"},
    "two layers": {"layer_norm": "pre", "final_norm": True, "head": "masked_lm"},
    "three layers": {"num_layers": 3, "head": "masked_lm", "mask": "future"},
    "hard": {"num_layers": 3, "weighting": "average_hard", "mask": "past"},
    "float32": {"layer_norm": "post", "dtype": "float32"},
}
METHODS = ("exhaustive", "incremental", "partial")


@functools.cache
def passes(name):
    """The model, its final rows and logits [n, V, n, ...] of every substitution."""
    model = build(MODELS[name], seed=1)
    config, tensors = written(model)
    tensors = {key: np.asarray(x, np.float64) for key, x in tensors.items()}
    rows, logits = np.zeros((N, V, N, 8)), np.zeros((N, V, N, 3))
    for i, symbol in np.ndindex(N, V):
        changed = np.where(np.arange(N) == i, symbol, INPUT)
        rows[i, symbol] = reference.forward(config, tensors, changed)
        logits[i, symbol] = reference.logits(config, tensors, changed)
    return model, rows, logits


def changes(table):
    """Of what is watched [n, V, ...] its change, exactly 0 at the symbol that is there."""
    base = table[np.arange(N), INPUT][:1]
    moved = table - base[:, None]
    moved[np.arange(N), INPUT] = 0
    return moved


def log_softmax(logits):
    logits = logits - logits.max(axis=-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


def replaced(table):
    """A table [n, V, ...] with NaN where nothing is replaced."""
    table = table.copy()
    table[np.arange(N), INPUT] = np.nan
    return table


def assert_holds(found, exact, coarse=1e-7):
    """The ends enclose the exact values, are where these are, and are not far apart."""
    assert found.values.shape == exact.shape
    largest = np.nanmax(np.abs(exact))
    # The oracle is of float64 too.
    assert encloses(found, exact, 1e-13 * largest)
    assert np.nanmax(found.upper - found.lower) <= coarse * largest


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_every_reduction_is_its_definition_over_forward_passes(name, method):
    model, rows, logits = passes(name)
    coarse = 0.1 if name == "float32" else 1e-7
    moved, read = changes(rows), changes(log_softmax(logits))
    ask: Any = functools.partial(scan, model, INPUT, method=method, ties="ignore")
    logs: dict[str, Any] = {"rows": "all", "target": "log_probabilities"}
    norms = replaced(np.linalg.norm(moved, axis=-1))
    assert_holds(ask(rows="all"), norms, coarse)
    assert_holds(ask(rows=[4, 1], reduce="none"), replaced(moved[:, :, [4, 1]]), coarse)
    assert_holds(ask(rows=-2), norms[..., -2], coarse)
    signed = ask(rows="all", target=LogProbability(1))
    assert_holds(signed, replaced(read[..., 1]), coarse)
    assert (signed.values[~np.isnan(signed.values)] < 0).any()
    there = np.nanmax(replaced(np.abs(read)), axis=(1, 3))
    assert_holds(ask(**logs, reduce="max"), there, coarse)
    mean = np.nanmean(replaced(np.linalg.norm(read[..., [2, 0]], axis=-1)), axis=1)
    assert_holds(ask(**logs, target_symbols=[2, 0], reduce="mean"), mean, coarse)
    own, at = ask(**logs | {"rows": "own"}, reduce="none"), np.arange(N)
    assert_holds(own, replaced(read)[at, :, at], coarse)
    assert own.axes == ("position", "symbol", "target")
    assert own.place((3, 0, 1))["row"] == 3


def jacobian_map(moved, center, symmetrize, apc):
    """The authors' recipe, over a tensor of signed changes, entries that are masked aside."""
    tensor = moved.copy()
    for axis in range(4) if center else ():
        tensor -= tensor.mean(axis=axis, keepdims=True)
    tensor = np.ma.filled(tensor, 0)
    if symmetrize == "tensor":
        tensor = (tensor + tensor.transpose(2, 3, 0, 1)) / 2
    found = np.sqrt((tensor**2).sum(axis=(1, 3)))
    np.fill_diagonal(found, 0)
    if apc:
        by_row, by_column = found.sum(0, keepdims=True), found.sum(1, keepdims=True)
        found = found - by_row * by_column / found.sum()
        np.fill_diagonal(found, 0)
    return (found + found.T) / 2 if symmetrize == "map" else found


@pytest.mark.parametrize(
    ("center", "symmetrize", "apc"),
    [(True, None, True), (False, "map", True), (True, "map", False)],
)
def test_a_map_whose_tensor_is_not_held_is_the_recipe_of_its_authors(
    center, symmetrize, apc, monkeypatch
):
    monkeypatch.setattr("bounds.influence.table.frobenius.host_bytes", lambda: 1)
    model, _, logits = passes("two layers")
    reduce = Frobenius(center, symmetrize, apc)
    found = scan(model, INPUT, rows="all", target="logits", reduce=reduce)
    exact = jacobian_map(changes(logits), center, symmetrize, apc)
    assert_holds(found, exact)
    assert found.axes == ("position", "row")


def test_a_tensor_that_does_not_fit_is_refused_with_its_bytes(monkeypatch):
    monkeypatch.setattr("bounds.influence.table.frobenius.host_bytes", lambda: 2**10)
    asked = {"rows": "all", "target": "logits", "reduce": Frobenius(True, "tensor")}
    with refused(r"2\.53 KiB, more than a quarter"):
        scan(passes("two layers")[0], INPUT, **asked)


@pytest.mark.parametrize(
    ("mask", "method"),
    [
        *(("future", method) for method in METHODS),
        *(("strict_future", method) for method in METHODS[1:]),
        *(("none", "partial"), ("past", "exhaustive"), ("strict_past", "incremental")),
    ],
)
def test_rows_that_masks_keep_a_position_from_are_exact_zeros(mask, method):
    model = build({"num_layers": 2, "mask": mask}, seed=3)
    found = scan(model, INPUT, rows="all", method=method, ties="ignore")
    rows = np.zeros((N, V, N, 8))
    for i, s in np.ndindex(N, V):
        rows[i, s] = jm.apply(model, np.where(np.arange(N) == i, s, INPUT))
    assert_holds(found, replaced(np.linalg.norm(changes(rows), axis=-1)))
    zero = found.values == 0
    assert (found.upper[zero] == 0).all()
    assert (found.lower[zero] == 0).all()
    if "future" in mask:
        rows_before = np.arange(N) < np.arange(N)[:, None, None]
        assert np.nanmax(np.where(rows_before, found.values, 0)) == 0


def test_targets_of_many_rows_are_signed_where_they_are_one_number():
    model, _, logits = passes("two layers")
    target = LogProbabilitySum((1, 0, 2), (0, 3, 5))
    chosen = changes(log_softmax(logits))[:, :, [0, 3, 5], [1, 0, 2]].sum(axis=-1)
    found = scan(model, INPUT, target=target, method="incremental")
    base = log_softmax(logits[0, INPUT[0]])[[0, 3, 5], [1, 0, 2]].sum()
    np.testing.assert_allclose(found.base, [[base]], rtol=1e-12)
    assert found.axes == ("position", "symbol")
    assert_holds(found, replaced(chosen))
    assert (found.values[~np.isnan(found.values)] < 0).any()


def test_ones_own_function_is_given_the_axes_that_there_are():
    model, _, logits = passes("two layers")
    shapes = []

    def largest(table):
        shapes.append(table.shape)
        return np.abs(table).max(axis=0)

    found = scan(model, INPUT, rows=[1, 2], target="logits", reduce=largest)
    assert set(shapes) == {(V, 2, 3)}
    assert (found.kind, found.rounding) == ("exact", "all")
    exact = np.abs(changes(logits)[:, :, [1, 2]]).max(axis=1)
    np.testing.assert_allclose(found.values, exact, rtol=1e-9)
    scan(model, INPUT, target=LogProbability(0), reduce=largest, rounding="none")
    assert shapes[-1] == (V,)
    growing = lambda x, calls=[]: calls.append(0) or np.zeros(len(calls))
    with refused("expected one shape for all positions"):
        scan(model, INPUT, reduce=growing)
    for returned in ("a", None, [[1.0], [1.0, 2.0]], {"a": 1.0}):
        with refused(r"^reduce returned a .* no array"):
            scan(model, INPUT, reduce=lambda x, returned=returned: returned)


def test_blocks_of_any_size_find_the_same(monkeypatch):
    model, rows, _ = passes("two layers")
    exact = replaced(np.linalg.norm(changes(rows), axis=-1))
    monkeypatch.setattr("bounds.influence.methods.exhaustive.batch_size", lambda *_: 5)
    found = scan(model, INPUT, rows="all", method="exhaustive")
    assert_holds(found, exact)
    assert (found.kind, found.exact) == ("exact", True)
    assert (found.hypotheses, found.rtol_exact) == ((ROUNDING,), 0.01)


def test_a_planted_error_is_far_outside(plant):
    model, rows, _ = passes("two layers")
    exact = replaced(np.linalg.norm(changes(rows), axis=-1))
    right = change_block.change_watched
    wrong = lambda *asked: right(*asked) * (1 + 1e-9)
    plant(change_block, "change_watched", wrong)
    found = scan(model, INPUT, rows="all", method="incremental")
    radii = np.maximum(found.upper - found.lower, 1e-300) / 2
    assert np.nanmax(np.abs(found.values - exact) / radii) > 1000


def test_a_table_beyond_memory_is_refused_with_its_bytes(monkeypatch):
    monkeypatch.setattr("jax_models.run.device_memory.SMALL", 0)
    monkeypatch.setattr("jax_models.run.device_memory.host_bytes", lambda: 100)
    model, _, _ = passes("two layers")
    with refused(r"the table of 6 x 3 x 6: this takes 2\.53 KiB"):
        scan(model, INPUT, rows="all")


def test_the_norm_of_small_changes_does_not_underflow():
    block = np.full((2, 4, 3), 1e-170)
    np.testing.assert_allclose(_norms(block), np.full(4, 1e-170 * 6**0.5))
    assert (_norms(np.zeros((2, 4, 3))) == 0).all()


def test_what_a_function_made_has_no_table_of_axes(tmp_path):
    model, _, _ = passes("two layers")
    found = scan(model, INPUT, rows="all", reduce=lambda x: x.sum(axis=0))
    for write in (found.to_csv, found.plot):
        with refused(r"only .* have names"):
            write(tmp_path / "out.csv")
    found.to_npz(tmp_path / "out.npz")


def test_a_map_without_a_radius_of_its_largest_cell_is_estimated():
    model, _, _ = passes("three layers")
    ask = functools.partial(scan, model, INPUT, rows="all", target="logits")
    found = ask(reduce=Frobenius(), rounding="top")
    assert found.kind == "estimated"
    assert found.hypotheses == ()
    assert ask(reduce=Frobenius(), rounding="all").kind == "exact"

"""Scans are their definition over forward passes, in every mask, head, reduction, family."""

import csv
import dataclasses
import functools
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import jax_models as jm
from benchmarks import reference
from bounds.influence import LogProbability, LogProbabilitySum, Pooled
from bounds.influence.propagation import change_block
from bounds.influence.scan import scan
from bounds.influence.table.frobenius import Frobenius, _norms
from bounds.numbers.kind import ROUNDING
from jax_models.model.readout import Pooling
from tests.bounds.influence.asking import on_host
from tests.bounds.influence.expect import encloses, refused
from tests.bounds.influence.models import TOKENS, build
from tests.jax_models.format.pretrained.folders import FIXTURES
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
    given = config, {key: np.asarray(x, np.float64) for key, x in tensors.items()}
    reads = reference.forward, reference.logits
    return model, *(table_of(functools.partial(read, *given)) for read in reads)


def table_of(run):
    """What is run of every substitution [n, V, ...], of the input at its own symbols."""
    inputs = [
        [np.where(np.arange(N) == i, s, INPUT) for s in range(V)] for i in range(N)
    ]
    return np.array([[run(x) for x in of_position] for of_position in inputs])


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
    rows = table_of(lambda tokens: jm.apply(model, tokens))
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


# Tests of base values are not about radii.
unrounded = functools.partial(scan, rounding="none")
LOGS = {"target": "log_probabilities", "reduce": "none"}
BASED = {
    "a number of one row": {"rows": -2, "target": LogProbability(1)},
    "entries of rows": {"rows": [4, 1], "target": "logits", "reduce": "none"},
    "some entries": {"rows": "all", **LOGS, "target_symbols": [2, 0]},
    "own rows": {"rows": "own", **LOGS},
    "some own rows": {"rows": "own", "target": LogProbability(1), "positions": [4, 0]},
}


@pytest.mark.parametrize("case", BASED)
def test_values_and_base_are_the_outputs_of_changed_inputs(case):
    model, _, logits = passes("two layers")
    asked = BASED[case]
    found = unrounded(model, INPUT, **asked)
    wanted = logits if asked["target"] == "logits" else log_softmax(logits)
    one = isinstance(asked["target"], LogProbability)
    wanted = wanted[..., 1 if one else asked.get("target_symbols", range(V))]
    if asked["rows"] == "own":
        at = np.arange(N)
        wanted = wanted[at, :, at][asked.get("positions", at)]
    elif asked["rows"] != "all":
        wanted = wanted[:, :, asked["rows"]]
    outputs = found.values + found.base
    there = ~np.isnan(found.values)
    assert found.base.ndim == found.values.ndim
    np.testing.assert_allclose(outputs[there], wanted[there], rtol=0, atol=1e-12)


def test_the_base_of_a_padded_input_is_its_own():
    tokens = np.resize(TOKENS, 17)
    model = build({"mask": "future"})
    asked = {"rows": "own", "target": "logits", "reduce": "none"}
    found = unrounded(model, tokens, method="exhaustive", **asked)
    logits = np.asarray(jm.apply_logits(model, tokens))
    np.testing.assert_allclose(found.base[:, 0], logits, rtol=0, atol=1e-12)


def test_norms_reductions_and_comparisons_have_no_base():
    model, _, _ = passes("two layers")
    for asked in (
        {"rows": "all"},
        {"rows": "all", "target": LogProbability(1), "reduce": "max"},
        {"rows": "all", "target": "kl"},
    ):
        assert unrounded(model, INPUT, **asked).base is None


def test_a_pooled_vector_and_a_function_have_a_base():
    model, rows, _ = passes("two layers")
    model = dataclasses.replace(model, pooling=Pooling("mean"))
    found = unrounded(model, INPUT, target=Pooled(), reduce="none")
    assert found.axes == ("position", "symbol", "target")
    there = ~np.isnan(found.values)
    means = found.values + found.base
    np.testing.assert_allclose(means[there], rows.mean(axis=2)[there], atol=1e-12)
    weighed = lambda x: (x[:, None] == np.arange(V)).astype(float).T @ (x + 1.0)
    found = unrounded(on_host(weighed, V), INPUT, reduce="none")
    counts = [(INPUT + 1)[INPUT == s].sum() for s in range(V)]
    np.testing.assert_array_equal(found.base[0, 0], counts)


def test_the_base_stands_in_the_files(tmp_path):
    model, _, _ = passes("two layers")
    found = unrounded(model, INPUT, **BASED["own rows"])
    found.to_csv(tmp_path / "scan.csv")
    found.to_npz(tmp_path / "scan.npz")
    with (tmp_path / "scan.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == N * (V - 1) * V
    for line in lines:
        i, t = int(line["position"]), int(line["target"])
        assert float(line["base"]) == found.base[i, 0, t]
        assert line["row"] == line["position"]
    with np.load(tmp_path / "scan.npz") as arrays:
        np.testing.assert_array_equal(arrays["base"], found.base)


@functools.cache
def family(name):
    """The model, its input, and all rows of every substitution [n, V, n, d]."""
    model = jm.from_pretrained(FIXTURES / name, dtype="float64")
    tokens = load_file(FIXTURES / name / "expected.safetensors")["tokens"]
    symbols = model.substitutable or range(model.vocab_size)
    shape = len(tokens), model.vocab_size, len(tokens), model.width
    rows = np.full(shape, np.nan)
    for i, token in enumerate(tokens):
        for symbol in set(symbols) - {int(token)} if token in symbols else ():
            changed = np.where(np.arange(len(tokens)) == i, symbol, tokens)
            rows[i, symbol] = jm.apply(model, changed)
    return model, tokens, rows - np.asarray(jm.apply(model, tokens))


# The first one is of every run.
FAMILIES = sorted((x.name for x in FIXTURES.iterdir()), key=lambda x: (x != "esm", x))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", FAMILIES)
def test_all_rows_of_every_family_are_those_of_forward_passes(name, method):
    model, tokens, moved = family(name)
    every = list(range(model.vocab_size))
    ask = functools.partial(scan, rows="all", symbols=every, method=method)
    if method != "exhaustive" and model.token_dropout is not None:
        with refused("the scale of the model's embeddings"):
            ask(model, tokens)
        return
    found = ask(model, tokens)
    exact = np.linalg.norm(moved, axis=-1)
    assert encloses(found, exact, 1e-13 * np.nanmax(exact))
    assert np.nanmax(found.upper - found.lower) < 1e-6 * np.nanmax(exact)
    assert np.nanmax(exact) > 0

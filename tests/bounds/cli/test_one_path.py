"""Commands, functions and the definition answer alike, in any order of what is listed.

The reference is NumPy over forward passes of every substitution, from the definitions; its
axes are in increasing order. What was found is turned to that order by the names of its axes.
"""

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest

import jax_models as jm
from benchmarks import reference
from bounds import compute_influence
from bounds.cli import scan as command
from bounds.cli.main import COMMANDS
from bounds.cli.shared.in_parts import compute_parts
from bounds.influence import TARGETS as NAMED
from bounds.influence.scan import scan
from bounds.influence.table import frobenius
from bounds.influence.table.frobenius import Frobenius
from bounds.influence.table.layout import Layout
from bounds.influence.table.words import parse_reduce
from bounds.influence.targets.table import parse_target
from bounds.store.results import MemoryResults
from jax_models.model.readout import Pooling
from tests.architecture import with_architecture
from tests.bounds.cli.outputs import read_csv, read_json
from tests.bounds.influence.test_scan import METHODS, assert_holds, log_softmax
from tests.written import written

TOKENS = np.array([0, 3, 1, 2, 2])
N, V = 5, 4
POSITIONS, SYMBOLS, ROWS = (0, 1, 3, 4), (0, 2, 3), (1, 2, 4)
# What is watched: its flags, and its definition on logits [..., V], of SYMBOLS.
TARGETS = {
    "logits": lambda x: x[..., SYMBOLS],
    "log_probabilities": lambda x: log_softmax(x)[..., SYMBOLS],
    "log_odds": lambda x: log_odds(np.exp(log_softmax(x[..., SYMBOLS]))),
    "smoothed": lambda x: log_odds(np.exp(log_softmax(x)[..., SYMBOLS]) + 0.01),
    "activation": None,
    "log_probability:2": lambda x: log_softmax(x)[..., [2]],
    "logit_difference:0:3": lambda x: x[..., [0]] - x[..., [3]],
}
# Places in increasing order, by how they are listed: no two orders are one another's.
ORDERS = [
    {"positions": [0, 1, 2, 3], "rows": [0, 1, 2, 3], "symbols": [0, 1, 2]},
    {"positions": [2, 0, 3, 1], "rows": [1, 2, 3, 0], "symbols": [2, 0, 1]},
]
ENTRIES = [[0, 1, 2], [1, 0, 2]]


def log_odds(shares):
    shares = shares / shares.sum(axis=-1, keepdims=True)
    return np.log2(shares / (1 - shares))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A folder with a model over four symbols and an input, as files."""
    folder = tmp_path_factory.mktemp("order")
    jm.save(model(), folder / "model.safetensors")
    (folder / "tokens.txt").write_text(" ".join(map(str, TOKENS)))
    return folder


@functools.cache
def model():
    shape = {"num_layers": 2, "num_heads": 2, "d_model": 8, "d_ff": 8}
    given = {**shape, "vocab_size": V, "num_classes": V, "dtype": "float64"}
    drawn = jm.random_transformer(jax.random.key(0), **with_architecture(**given))
    return dataclasses.replace(drawn, pooling=Pooling())


@functools.cache
def passes():
    """Activations and logits [n, V, n, ...] of every substitution."""
    config, tensors = written(model())
    inputs = [np.where(np.arange(N) == i, s, TOKENS) for i, s in np.ndindex(N, V)]
    return [
        np.array([one(config, tensors, x) for x in inputs]).reshape(N, V, N, -1)
        for one in (reference.forward, reference.logits)
    ]


def changes(of):
    """Change [n, V, n, c] of a function of logits, None the rows; 0 where nothing changes."""
    rows, logits = passes()
    table = rows if of is None else of(logits)
    moved = table - table[0, TOKENS[0]]
    moved[np.arange(N), TOKENS] = 0
    return moved


def expected(target, reduce, rows, symbols):
    """What is made of the changes at POSITIONS, by definition.

    Args:
        target: one of TARGETS.
        reduce: as `scan` takes it.
        rows: increasing.
        symbols: increasing, or of each position [P, K].
    """
    at, rows = np.array(POSITIONS), list(rows)
    symbols = np.broadcast_to(symbols, (at.size, np.shape(symbols)[-1]))
    table = changes(TARGETS[target])[at[:, None], symbols][:, :, rows]
    if isinstance(reduce, Frobenius):
        return jacobian_map(table, at[:, None] == rows, reduce)
    table[(symbols < 0) | (symbols == TOKENS[at][:, None])] = np.nan
    if reduce == "max":
        return np.nanmax(np.abs(table), axis=(1, 3))
    if reduce == "none":
        return table.squeeze(3) if table.shape[3] == 1 else table
    scalar = table.shape[3] == 1
    norms = table[..., 0] if scalar else np.linalg.norm(table, axis=3)
    return np.nanmean(norms, axis=1) if reduce == "mean" else norms


def jacobian_map(tensor, diagonal, reduce):
    for axis in range(4) if reduce.center else ():
        tensor = tensor - tensor.mean(axis=axis, keepdims=True)
    if reduce.symmetrize == "tensor":
        tensor = (tensor + tensor.transpose(2, 3, 0, 1)) / 2
    found = np.where(diagonal, 0, np.sqrt((tensor**2).sum(axis=(1, 3))))
    if reduce.apc:
        product = found.sum(1, keepdims=True) * found.sum(0, keepdims=True)
        found = np.where(diagonal, 0, found - product / found.sum())
    return (found + found.T) / 2 if reduce.symmetrize == "map" else found


def in_order(found):
    """A scan's values and ends, all axes in increasing order of what they name."""
    by = np.argsort(found.positions)
    symbols = found.symbols if found.symbols.ndim == 1 else found.symbols[by]
    names = {"row": found.rows, "symbol": symbols, "target": found.target_symbols}
    names["position"] = found.positions
    ends = np.stack([found.values, found.lower, found.upper], axis=-1)
    for axis, of in enumerate(found.axes):
        if names[of] is not None:  # an activation's entries have no names
            order = np.argsort(names[of], axis=-1)
            shape = [1] * ends.ndim
            shape[axis - order.ndim + 1 : axis + 1] = order.shape
            ends = np.take_along_axis(ends, order.reshape(shape), axis=axis)
    ends = np.moveaxis(ends, -1, 0)
    return SimpleNamespace(values=ends[0], lower=ends[1], upper=ends[2])


def question(target, reduce, order, entries):
    """Flags of the command, and arguments of `scan`, of one order of a question."""
    square = parse_reduce(reduce) if reduce else None
    same = isinstance(square, Frobenius) and square.symmetrize
    rows = POSITIONS if same else ROWS
    given = {
        "positions": [POSITIONS[i] for i in order["positions"]],
        "rows": [rows[i] for i in order["rows"] if i < len(rows)],
        "symbols": [SYMBOLS[i] for i in order["symbols"]],
    }
    letters = [SYMBOLS[i] for i in entries]
    listed = ",".join(map(str, letters))
    smoothed = {"log_odds": f"log_odds:{listed}", "smoothed": f"log_odds:{listed}:0.01"}
    typed = [f"--{name}={','.join(map(str, x))}" for name, x in given.items()]
    typed.append(f"--target={smoothed.get(target, target)}")
    typed += [f"--reduce={reduce}"] if reduce else []
    if target in ("logits", "log_probabilities"):
        given["target_symbols"] = letters
        typed.append(f"--target_symbols={listed}")
    given["target"] = parse_target(smoothed.get(target, target), int)
    return typed, {**given, "reduce": parse_reduce(reduce)}


def files(path):
    return [f"--model={path}/model.safetensors", f"--tokens={path}/tokens.txt"]


def by_command(path, typed, size, store=None):
    """What the command finds in parts of so many positions."""
    options = COMMANDS["scan"].read(["--method=exhaustive", *files(path), *typed])
    asked = command._ask(options)
    parts = dataclasses.replace(asked.plan(), size=size, least=size)
    return compute_parts(store or MemoryResults(), asked, parts).result


def assert_one_answer(path, target, reduce):
    """Command and function, in every order and any parts, answer by definition."""
    for size, order, entries in zip((3, 1), ORDERS, ENTRIES, strict=True):
        typed, given = question(target, reduce, order, entries)
        exact = expected(
            target, given["reduce"], sorted(given["rows"]), sorted(given["symbols"])
        )
        for found in (
            by_command(path, typed, size),
            scan(model(), TOKENS, method="exhaustive", **given),
        ):
            for name in ("positions", "rows", "symbols"):
                assert getattr(found, name).tolist() == given[name]
            assert_holds(in_order(found), exact)


# Every target, and every reduction; centring makes 0 of a target with one entry.
CASES = [
    *(("logits", x) for x in (None, "none", "max", "mean", "frobenius")),
    *(("logits", f"frobenius:{x}") for x in ("tensor", "map", "noapc", "map:noapc")),
    ("log_probabilities", "max"),
    ("log_probabilities", "frobenius:map:nocenter"),
    ("log_odds", "mean"),
    ("log_odds", "frobenius:tensor"),
    ("log_odds", "frobenius:tensor:noapc"),
    ("smoothed", "none"),
    ("smoothed", "frobenius:tensor:nocenter"),
    ("activation", None),
    ("activation", "frobenius:nocenter"),
    ("activation", "frobenius:nocenter:noapc"),
    ("log_probability:2", "none"),
    ("log_probability:2", "mean"),
    ("log_probability:2", "frobenius:map:nocenter:noapc"),
    ("logit_difference:0:3", None),
    ("logit_difference:0:3", "max"),
    ("logit_difference:0:3", "frobenius:nocenter"),
    ("logits", "frobenius:tensor:nocenter:noapc"),
]


@pytest.mark.parametrize(("target", "reduce"), CASES)
def test_command_and_function_answer_alike_in_any_order(target, reduce, path):
    assert_one_answer(path, target, reduce)


# What the last row's influence is of, as a function of logits.
WATCHED = {
    "activation": None,
    "logits": lambda x: x,
    "log_probability:2": TARGETS["log_probability:2"],
}


@pytest.mark.parametrize(
    ("target", "method"),
    [
        *((target, method) for target in WATCHED for method in METHODS),
        *(
            (x, "exhaustive")
            for x, one in NAMED.items()
            if not one.form and x not in WATCHED
        ),
    ],
)
def test_influence_is_the_function_the_scan_of_its_row_and_the_forward_passes(
    target, method, run, path, no_figures
):
    # Targets of all rows have no query.
    whole = target in ("pooled", "cosine_distance")
    typed = [f"--target={target}", f"--method={method}"]
    typed += [] if whole else ["--include_query"]
    assert run("influence", *files(path), *typed).code == 0
    asked: Any = {"target": parse_target(target, int), "method": method}
    found: Any = compute_influence(model(), TOKENS, include_query=not whole, **asked)
    kept = np.full((2, N, V), np.nan)
    for line in read_csv("influence"):
        ends = float(line["lower"]), float(line["upper"])
        kept[:, int(line["position"]), int(line["symbol"])] = ends
    np.testing.assert_allclose(kept, [found.lower, found.upper], 1e-12)
    middle = (found.lower + found.upper) / 2
    row = scan(model(), TOKENS, **asked)
    np.testing.assert_allclose(np.abs(row.values), middle, 1e-12)
    record = read_json("influence")
    assert (record["position"], record["symbol"]) == (found.position, found.symbol)
    assert record["max"] == pytest.approx(found.max, rel=1e-12)
    assert found.max > 1e-6
    if target in WATCHED:
        exact = np.linalg.norm(changes(WATCHED[target])[:, :, -1], axis=-1)
        exact[np.arange(N), TOKENS] = np.nan
        ends = {"lower": found.lower, "upper": found.upper}
        assert_holds(SimpleNamespace(values=middle, **ends), exact)
        best = np.unravel_index(np.nanargmax(exact), exact.shape)
        assert (found.position, found.symbol) == best


LONE = "--reduce=frobenius:tensor:nocenter"


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (["--symbols=3,0,3"], "symbols lists one twice"),
        *(
            (
                [LONE, f"--target={x}", "--rows=1,0", "--positions=1,0"],
                "the target is of no symbols",
            )
            for x in ("activation", "log_probability:2")
        ),
    ],
)
def test_commands_and_functions_refuse_alike(typed, complaint, path):
    options = dict(x.removeprefix("--").split("=") for x in typed)
    read = {"reduce": parse_reduce, "target": lambda x: parse_target(x, int)}
    whole = lambda x: list(map(int, x.split(",")))
    given = {x: read.get(x, whole)(text) for x, text in options.items()}
    for ask in (
        lambda: by_command(path, typed, 2),
        lambda: scan(model(), TOKENS, **given),
    ):
        with pytest.raises(jm.InputError, match=complaint):
            ask()


@pytest.mark.parametrize("reduce", [None, "none", "max", "mean"])
def test_symbols_of_each_position_may_stand_in_any_order(reduce, path):
    listed = {0: [3, 1], 1: [2, -1], 3: [1, 3], 4: [0, 3]}
    exact = expected("logits", reduce, ROWS, [sorted(listed[i]) for i in POSITIONS])
    for at, step in (([0, 1, 3, 4], 1), ([4, 0, 3, 1], -1)):
        symbols = [listed[i][::step] for i in at]
        lines = [listed.get(i, []) for i in range(N)]
        text = [" ".join(str(s) for s in x[::step] if s >= 0) for x in lines]
        (path / "candidates.txt").write_text("\n".join(text) + "\n")
        typed = [f"--candidates={path}/candidates.txt", "--rows=4,1,2"]
        typed += [f"--positions={','.join(map(str, at))}", "--target=logits"]
        typed += ["--target_symbols=3,0,2"]
        typed += [f"--reduce={reduce}"] if reduce else []
        given = {"positions": at, "rows": [4, 1, 2], "symbols": symbols}
        given |= {"target": "logits", "target_symbols": [3, 0, 2], "reduce": reduce}
        for found in (by_command(path, typed, 3), scan(model(), TOKENS, **given)):
            assert_holds(in_order(found), exact)


@pytest.mark.parametrize("target", ["logits", "log_odds"])
def test_pairing_by_index_is_noticed(target, path, monkeypatch):
    monkeypatch.setattr(
        frobenius, "_places", lambda names, listed: np.arange(len(names))
    )
    with pytest.raises(AssertionError):
        assert_one_answer(path, target, "frobenius:tensor")


def test_a_part_in_another_order_is_noticed(path, monkeypatch):
    only = Layout.only

    def turned(layout, rows, count=0):
        found, kept = only(layout, rows, count)
        return dataclasses.replace(found, cells=found.cells[:, ::-1]), kept

    monkeypatch.setattr(Layout, "only", turned)
    with pytest.raises(AssertionError):
        assert_one_answer(path, "logits", "frobenius")


@pytest.mark.parametrize("first", ["frobenius:tensor", "none"])
def test_a_map_and_a_table_share_parts_only_where_these_are_one(first, path):
    store, order = MemoryResults(), ORDERS[1]
    for reduce in (first, *({"frobenius:tensor", "none"} - {first})):
        typed, given = question("logits", reduce, order, ENTRIES[1])
        typed = [x for x in typed if not x.startswith("--rows")] + ["--rows=all"]
        # On the diagonal of a map is 0 without being asked.
        typed += ["--nodiagonal"] * (reduce == "none")
        found = by_command(path, typed, 2, store)
        exact = expected(
            "logits", given["reduce"], found.rows[np.argsort(found.rows)], SYMBOLS
        )
        if reduce == "none":
            for i, position in enumerate(POSITIONS):
                exact[i, :, position] *= 0  # NaN stays
        assert_holds(in_order(found), exact)


def test_classes_are_paired_with_no_symbols():
    shape = {"num_layers": 1, "num_heads": 1, "d_model": 8, "d_ff": 8, "num_classes": 2}
    architecture = with_architecture(**shape, vocab_size=V)
    few = jm.random_transformer(jax.random.key(0), **architecture)
    given = {"target": "logits", "symbols": [0, 1], "rows": "all"}
    with pytest.raises(jm.InputError, match="the target is of no symbols"):
        scan(few, TOKENS, reduce=Frobenius(symmetrize="tensor"), **given)

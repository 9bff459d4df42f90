"""Targets that compare two outputs, held against their definition in many digits."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import bounds
from benchmarks import reference
from tests.bounds.influence.expect import encloses
from tests.bounds.influence.many_digits import MP, every_pass
from tests.bounds.influence.models import TOKENS, build

INPUT = TOKENS[:6]
MODELS: dict[str, dict[str, Any]] = {
    "one layer": {"num_layers": 1, "dtype": "float32"},
    "two layers": {"num_layers": 2, "head": "masked_lm", "layer_norm": "post"},
    "three layers": {"num_layers": 3, "layer_norm": "pre", "mask": "future"},
    "lumped": {"num_layers": 2, "position": None, "final_norm": True},
    "hard": {"num_layers": 2, "weighting": "average_hard"},
}
# Every method, and every model.
CASES = [
    ("one layer", "incremental"),
    ("two layers", "exhaustive"),
    ("two layers", "partial"),
    ("three layers", "incremental"),
    ("lumped", "lumped"),
    ("hard", "exhaustive"),
    ("hard", "incremental"),
]
Compare = Callable[[Any, Any], Any]  # of two outputs, in many digits

DRAW = np.random.default_rng(0)
LOGITS = {
    "even": np.zeros(5),
    "usual": DRAW.normal(size=5),
    "peaked": np.asarray([0.0, 35.0, 1.0, -2.0, 3.0]),
    "very peaked": np.asarray([0.0, 300.0, 1.0, -2.0, 3.0]),
    "two alike": np.asarray([40.0, 40.0, 0.0, 1.0, 2.0]),
}
CHANGES = {
    f"{size:g}": size * DRAW.normal(size=5) for size in 10.0 ** np.arange(-12, 3, 2)
}
CHANGES["from one to another"] = np.asarray([1e3, -1e3, 0.0, 0.0, 0.0])
CHANGES["of all alike"] = 1 + CHANGES["1e-12"]
CHANGES["of one alone"] = np.asarray([0.0, 0.0, 1e-12, 0.0, 0.0])


@functools.cache
def passes(name, read=reference.logits):
    """The model, and what is read of the input and of every substitution."""
    model = build(MODELS[name], seed=1)
    return model, every_pass(read, model, INPUT)


def exact_table(passes, compare: Compare):
    """What a comparison with the base says of every substitution, [n, V, rows]."""
    base = passes[None]
    table = np.full((len(base), 3, len(base)), np.nan)
    for position, symbol in passes.keys() - {None}:
        changed = passes[position, symbol]
        for row in range(len(base)):
            table[position, symbol, row] = compare(base[row], changed[row])
    return table


def assert_influences(name, method, target, compare: Compare):
    """`compute_influence` and `scan` are what the definition says of all passes."""
    model, logits = passes(name)
    exact = exact_table(logits, compare)
    if method != "lumped":  # which follows one row
        found = bounds.scan(model, INPUT, method=method, target=target, rows="all")
        assert encloses(found, exact)
    exact = exact[..., -1]
    exact[-1] = np.nan  # the query's own token is not asked for
    assert_encloses(model, method, target, exact)


def assert_encloses(model, method, target, exact):
    """Influences are exact, and their ends hold these numbers [n, V] and little else."""
    found = bounds.compute_influence(model, INPUT, method=method, target=target)
    assert found.exact
    assert encloses(found, exact)
    coarse = 0.1 if model.dtype == np.float32 else 1e-6
    assert np.nanmax(found.upper - found.lower) <= coarse * np.nanmax(exact)
    return found


def softmax(logits):
    weights = [MP.exp(x) for x in logits]
    return [x / sum(weights) for x in weights]


def in_digits(row):
    return [MP.mpf(float(x)) for x in row]


def relative_error(target, compare: Compare, base, change):
    """Of the rule at floats, and the comparison itself."""
    found = np.asarray(_change(target, jnp.asarray(base), jnp.asarray(change)))
    assert found.dtype == base.dtype
    assert found.shape == (1,)
    with MP.workdps(400):  # of probabilities near 1 all digits are nines
        before, moved = in_digits(base), in_digits(change)
        exact = compare(before, [a + b for a, b in zip(before, moved, strict=True)])
        return float(abs(in_digits(found)[0] - exact) / exact), float(exact)


_change = jax.jit(lambda target, base, change: target.change(base, change))

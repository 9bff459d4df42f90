"""Targets by their definitions, of two outputs in many digits, and models for them."""

import dataclasses
import functools
from typing import Any

import numpy as np

import bounds
from benchmarks import reference
from bounds.influence import (
    LogitDifference,
    LogOdds,
    LogProbabilities,
    LogProbability,
    LogProbabilitySum,
    Loss,
)
from jax_models.model.readout import Pooling
from tests.bounds.influence.expect import encloses
from tests.bounds.influence.many_digits import MP, distance, every_pass
from tests.bounds.influence.models import TOKENS, build

INPUT = TOKENS[:6]
MODELS: dict[str, dict[str, Any]] = {
    "one layer": {"num_layers": 1, "dtype": "float32"},
    "two layers": {"num_layers": 2, "head": "masked_lm", "layer_norm": "post"},
    "three layers": {"num_layers": 3, "layer_norm": "pre", "mask": "future"},
    "lumped": {"num_layers": 2, "position": None, "final_norm": True},
    "hard": {"num_layers": 3, "weighting": "average_hard"},
    # The last layer stands below too.
    "tied": {"layer_norm": "post", "mask": "future", "same_layers": (0, 1, 0)},
}
VALUES: dict[str, Any] = {
    "log_probabilities": LogProbabilities(),
    "log-probability": LogProbability(1),
    "loss": Loss(2),
    "difference": LogitDifference(0, 2),
    "odds": LogOdds((0, 2)),
    "odds of all": LogOdds((2, 0, 1)),
    "odds with epsilon": LogOdds((1, 2), 1e-6),
}
SUM = LogProbabilitySum((1, 0, 2), (0, 3, 5))


@functools.cache
def model_of(name, pooling=None):
    options = {"num_layers": 3, **MODELS[name]}
    return dataclasses.replace(build(options, seed=1), pooling=pooling)


@functools.cache
def passes(name, read=reference.logits):
    """What is read of the input and of every substitution."""
    return every_pass(read, model_of(name), INPUT)


def softmax(logits):
    weights = [MP.exp(x) for x in logits]
    return [x / sum(weights) for x in weights]


def value_of(target, logits):
    """Values of a target of one row."""
    logits = [MP.mpf(x) for x in logits]
    p = softmax(logits)
    match target:
        case LogProbabilities():
            return [MP.log(x) for x in p]
        case Loss(symbol):
            return [-MP.log(p[symbol])]
        case LogProbability(symbol):
            return [MP.log(p[symbol])]
        case LogitDifference(symbol, other):
            return [logits[symbol] - logits[other]]
        case LogOdds(symbols, epsilon):
            q = [p[s] + MP.mpf(epsilon) for s in symbols]
            q = [x / sum(q) for x in q]
            return [MP.log(x / (1 - x), 2) for x in q]
    raise TypeError(target)


def kullback_leibler(before, after):
    """KL(base || changed): the sum of p log(p / q)."""
    pairs = zip(softmax(before), softmax(after), strict=True)
    return sum(p * MP.log(p / q) for p, q in pairs)


def jensen_shannon(before, after):
    """Half the divergences of both from their mean."""
    total = MP.mpf(0)
    for p, q in zip(softmax(before), softmax(after), strict=True):
        mean = (p + q) / 2
        total += p * MP.log(p / mean) + q * MP.log(q / mean)
    return total / 2


def dot(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))


def cosine_distance(before, after):
    norms = MP.sqrt(dot(before, before)) * MP.sqrt(dot(after, after))
    return 1 - dot(before, after) / norms


def pooled(pooling, rows):
    chosen = {"mean": rows, "first": rows[:1], "last": rows[-1:]}[pooling.kind]
    mean = chosen.sum(axis=0) / len(chosen)
    return mean / MP.norm(list(mean)) if pooling.normalised else mean


def summed(logits):
    pairs = zip(SUM.at, SUM.symbols, strict=True)
    return [sum(MP.log(softmax(logits[row])[symbol]) for row, symbol in pairs)]


def of_rows(compare):
    """Sizes of the changes of all rows, from a size of one."""
    return lambda *outputs: [compare(*rows) for rows in zip(*outputs, strict=True)]


def of_values(value):
    return lambda before, after: distance(value(before), value(after))


def of_pooled(pooling, compare=distance):
    return lambda *rows: compare(*(pooled(pooling, x) for x in rows))


UNIT, MEAN, FIRST, LAST = (
    *(Pooling("mean", True), Pooling("mean")),
    *(Pooling("first", True), Pooling("last")),
)
COMPARED = {"kl": kullback_leibler, "jensen_shannon": jensen_shannon}
# Target, pooling of the model, size of a change: from all logits, or from rows if pooled.
DEFINED: dict[str, tuple[Any, Pooling | None, Any]] = {
    **{
        name: (target, None, of_rows(of_values(functools.partial(value_of, target))))
        for name, target in VALUES.items()
    },
    **{name: (name, None, of_rows(compare)) for name, compare in COMPARED.items()},
    "sum": (SUM, None, of_values(summed)),
    "unit mean": ("pooled", UNIT, of_pooled(UNIT)),
    "first": ("pooled", FIRST, of_pooled(FIRST)),
    "last": ("pooled", LAST, of_pooled(LAST)),
    "cosine of means": ("cosine_distance", MEAN, of_pooled(MEAN, cosine_distance)),
    "cosine of firsts": ("cosine_distance", FIRST, of_pooled(FIRST, cosine_distance)),
}


def assert_encloses(model, method, target, exact):
    """Influences are exact, and their ends hold these numbers [n, V] and little else."""
    found = bounds.compute_influence(model, INPUT, method=method, target=target)
    assert found.exact
    assert encloses(found, exact)
    coarse = 0.1 if model.dtype == np.float32 else 1e-6
    assert np.nanmax(found.upper - found.lower) <= coarse * np.nanmax(exact)
    return found

"""Models that annihilate what one substitution carries, and what is asked of them.

Each does so at one place, to rounding; the truth is the reference transformer's with 40
digits.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import bounds
from benchmarks import reference
from tests.bounds.influence.many_digits import DIGITS
from tests.bounds.influence.models import build
from tests.written import written

TOKENS, POSITION, SYMBOL, QUERY = np.array([0, 1, 2, 0, 1, 2, 0, 1]), 2, 0, 7
MANY = [QUERY, QUERY - 1]
# 0.5 + 0.1 - 0.6 is 0 in floats, and -2^-55 of what they stand for.
CANCELS, LINE = (0.5, 0.1, 0.6), (1.0, 1.0, -1.0)


def changed(model, method="incremental"):
    """The change of the query's final row [d]."""
    one = {"positions": [POSITION], "symbols": [SYMBOL], "rows": [QUERY]}
    found = bounds.scan(model, TOKENS, reduce="none", method=method, **one)
    return np.ravel(found.values)


def with_last(model, feed_forward=None, **parts):
    """The model with parts of its last layer's attention replaced, and its block."""
    last = model.layers[-1]
    attention = dataclasses.replace(last.attention, **parts)
    block = last.feed_forward if feed_forward is None else feed_forward
    last = dataclasses.replace(last, attention=attention, feed_forward=block)
    return dataclasses.replace(model, layers=(*model.layers[:-1], last))


def without(weight, direction):
    """A matrix that annihilates a direction."""
    along = (weight @ direction)[..., None] * direction
    return jnp.asarray(weight - along / (direction @ direction))


def apart(model, at=POSITION):
    """Its substitution moves the first three entries of the row, by what `LINE` cancels."""
    embedding = model.embedding.at[SYMBOL].set(model.embedding[TOKENS[at]])
    embedding = embedding.at[TOKENS[at], :3].set(0)
    embedding = embedding.at[SYMBOL, :3].set(jnp.array(CANCELS))
    return dataclasses.replace(model, embedding=embedding)


def reading(*names, at=POSITION, **case):
    """An only layer whose queries, keys or values read those entries, along `LINE`."""
    case = {"num_layers": 1, "mask": "none", "num_classes": None, **case}
    return along_line(apart(build(case), at), *names)


def along_line(model, *names):
    """The model whose last layer reads the first entries so by those projections alone."""
    parts = {}
    for name in ("query", "key", "value"):
        line = jnp.array(LINE if name in names else (0.0, 0.0, 0.0))
        parts[name] = getattr(model.layers[-1].attention, name).at[..., :3].set(line)
    return with_last(model, **parts)


def reading_deep(*names, num_layers=2, **case):
    """The same of the last of several layers, each below it writing what `LINE` cancels."""
    case |= {"num_layers": num_layers, "mask": "none", "num_classes": 1}
    *below, _ = (model := apart(build(case))).layers
    for depth, layer in enumerate(below):
        attention = layer.attention
        along = jnp.array(CANCELS)[:, None] * attention.output[0]
        output = jnp.zeros_like(attention.output).at[:3].set(along)
        below[depth] = dataclasses.replace(
            layer,
            attention=dataclasses.replace(attention, output=output),
            feed_forward=jax.tree.map(jnp.zeros_like, layer.feed_forward),
        )
    model = dataclasses.replace(model, layers=(*below, model.layers[-1]))
    return unseen_rows(along_line(model, *names))


def unseen_rows(model):
    """The model whose block and read-out do not see the first three entries of rows."""
    block = model.layers[-1].feed_forward
    block = dataclasses.replace(block, w1=block.w1.at[:, :3].set(0))
    weight = model.readout.weight.at[:, :3].set(0)
    readout = dataclasses.replace(model.readout, weight=weight)
    return dataclasses.replace(with_last(model, block), readout=readout)


def ends(model, method="incremental", rows=None, position=POSITION, target=None):
    """The true influence of the substitution, and the ends that are stated."""
    target = target or ("logits" if model.readout is not None else "activation")
    ask = {"positions": [position], "symbols": [SYMBOL]}
    ask |= {"method": method, "target": target}
    about = {"query": QUERY, "include_query": True}
    exact = reference.influence(
        *written(model), TOKENS, **about, target=target, arithmetic=DIGITS
    )[position, SYMBOL]
    if rows is None:
        found = bounds.compute_influence(model, TOKENS, **about, **ask)
        lower, upper = (x[position, SYMBOL] for x in (found.lower, found.upper))
    else:
        found = bounds.scan(model, TOKENS, rows=rows, **ask)
        lower, upper = (np.ravel(x)[0] for x in (found.lower, found.upper))
    return exact, lower, upper


def holds(model, method="incremental", **question):
    """Whether the influence is enclosed, and not called exact: in truth it is rounding."""
    exact, lower, upper = ends(model, method, **question)
    assert exact < 1e-14
    return lower <= exact <= upper and lower <= 0 < upper < 1e-9


def within(model):
    """Whether the influence is enclosed."""
    exact, lower, upper = ends(model)
    return lower <= exact <= upper


def zeros_of(function):
    """The function with zeros in place of what it returns."""
    return lambda *given: jax.tree.map(jnp.zeros_like, function(*given))

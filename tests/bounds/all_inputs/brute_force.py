"""The largest influence over all inputs, by running the model on every one of them."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm


@functools.partial(jax.jit, static_argnames=("query", "target"))
def outputs(model, inputs, *, query, target):
    """The output of every input [m, n] at the query [m, width]."""

    def one(tokens):
        y, _ = jm.forward(model, tokens, jnp.asarray([query], jnp.int32))
        return y[0] if target == "activation" else model.readout(y[0])

    return jax.vmap(one)(inputs)


def all_strings(symbols, length):
    return np.asarray(list(itertools.product(symbols, repeat=length)), np.int32)


def largest_influence(model, length, *, query=-1, target="activation"):
    """The maximum over inputs whose tokens are substitutable but at the query."""
    query %= length
    every = range(model.vocab_size)
    symbols = every if model.substitutable is None else model.substitutable
    at_query = [s for s in every if s not in symbols] or every
    inputs = all_strings(every, length)
    y = np.asarray(outputs(model, jnp.asarray(inputs), query=query, target=target))
    weights = len(every) ** np.arange(length)[::-1]
    fits = np.isin(np.delete(inputs, query, axis=1), symbols).all(axis=1)
    fits &= np.isin(inputs[:, query], at_query)
    best = 0.0
    for position in np.delete(np.arange(length), query):
        for symbol in symbols:
            old = inputs[:, position]
            asked = fits & np.isin(old, symbols) & (old != symbol)
            changed = np.arange(len(inputs)) + (symbol - old) * weights[position]
            change = y[changed[asked]] - y[asked]
            best = max(best, np.linalg.norm(change, axis=1).max(initial=0.0))
    return best

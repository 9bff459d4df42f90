"""Tiny models of wild sizes, and what the screen claims of them against two passes."""

import jax
import jax.numpy as jnp
import numpy as np

import jax_models as jm
from bounds.influence.screening.row_map import LastReads
from bounds.influence.screening.screen import (
    ScreenLevel,
    prepare_envelopes,
    prepare_screen,
    screen_states,
)
from bounds.influence.targets.change import change_target
from jax_models.model.transformer import apply_layer, embed
from tests.architecture import with_architecture

N = 6
TOKENS = np.array([0, 1, 1, 0, 1, 0], np.int32)
SHAPE = {"num_heads": 2, "d_model": 4, "d_ff": 4, "vocab_size": 2, "dtype": "float64"}


def wild_model(seed, **case):
    """A random model, every matrix times a factor from five decades."""
    rng = np.random.default_rng(seed)
    model = jm.random_transformer(
        jax.random.key(seed), **with_architecture(**{**SHAPE, **case})
    )

    def scale(leaf):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return leaf * float(10.0 ** rng.uniform(-2.5, 0.7))

    return jax.tree.map(scale, model)


@jax.jit
def passes(model, inputs):
    """Rows [inputs, n, d] before, between and after the layers."""
    rows = [jax.vmap(lambda tokens: embed(model, tokens))(inputs)]
    for layer in model.layers:
        rows.append(jax.vmap(lambda x, layer=layer: apply_layer(layer, x)[0])(rows[-1]))
    return rows


screen = jax.jit(screen_states, static_argnames=("query", "target", "row_tile"))


def examine(model, query, target="activation", groups=2, rank=0, tokens=TOKENS):
    """Returns error / bound of the target, of rows between layers, and of row i."""
    position = np.array([i for i in range(tokens.size) if i != query], np.int32)
    changed = np.repeat(tokens[None], position.size, axis=0)
    each = np.arange(position.size)
    changed[each, position] = symbol = 1 - tokens[position]
    base = prepare_screen(model, jnp.asarray(tokens), query, target)
    envelopes = prepare_envelopes(model, base, groups, rank)
    found, states = screen(
        ScreenLevel(model, jnp.asarray(tokens), base, envelopes),
        jnp.asarray(position),
        jnp.asarray(symbol, jnp.int32),
        query=query,
        target=target,
        row_tile=tokens.size,
    )
    rows = [
        np.asarray(x) for x in passes(model, np.concatenate([tokens[None], changed]))
    ]
    before, change = [x[0] for x in rows], [x[1:] - x[0] for x in rows]
    largest = np.max([np.abs(x).max(axis=(1, 2)) for x in rows], axis=0)
    largest = np.maximum(largest[0], largest[1:])
    rounding = 1e-12 * largest * np.maximum(1.0, largest)

    def excess(error, bound):
        """Largest error / bound, substitutions first; other than numbers bound nothing."""
        bound = np.asarray(bound).reshape(error.shape)
        error = error - rounding.reshape(-1, *[1] * (error.ndim - 1))
        shows = np.isfinite(bound) & (error > 0)
        return (error[shows] / np.maximum(bound[shows], 1e-300)).max(initial=0.0)

    final = jnp.asarray(before[-1][query])
    exact = jax.vmap(lambda x: change_target(model, target, final, x)[1])(
        change[-1][:, query]
    )
    ratios = {"target": excess(norms(exact - np.asarray(found.change)), found.error)}
    of_rows, of_own, rests = [0.0], [0.0], []
    for state, moved in zip(states, change[1:], strict=False):
        rest = moved - np.moveaxis(np.asarray(state.known), 2, 0)
        rest[each, position] = 0
        rests.append(rest)
        of_rows.append(excess(norms(rest), np.asarray(state.unknown).T))
        own = moved[each, position] - np.asarray(state.own).T
        of_own.append(excess(norms(own), state.own_unknown))
    ratios |= {"rows": max(of_rows), "own": max(of_own)}
    reader = LastReads(model.layers[-1], base.last.prepared.queries[:, 0])
    read = read_norms(reader, before[-2], rests[-1])
    bounds = np.moveaxis(np.asarray(states[-1].reads), 2, 0)
    return {**ratios, "reads": excess(read, bounds)}


def norms(rows):
    return np.linalg.norm(rows, axis=-1)


def read_norms(reader, rows, rest):
    """Norms of what the last layer reads of changes of its input rows, to first order."""
    derivative = np.asarray(reader.derivative(jnp.asarray(rows)))
    moved = (derivative @ rest[..., None])[..., 0]
    ends = np.cumsum([h * e for h, e in (x.shape[:2] for x in reader.maps)])[:-1]
    heads = reader.maps[0].shape[0]
    parts = (
        x.reshape(*x.shape[:-1], heads, -1) for x in np.split(moved, ends, axis=-1)
    )
    return np.concatenate([norms(x) for x in parts], axis=-1)

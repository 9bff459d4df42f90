"""Tiny models of wild sizes, and what the screen claims of them against two passes."""

import functools

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


@functools.lru_cache
def _pass(structure_key, depth):
    del structure_key

    def run(model, tokens):
        rows = [embed(model, tokens)]
        for layer in model.layers[:depth]:
            rows.append(apply_layer(layer, rows[-1])[0])
        return rows

    return jax.jit(run)


def examine(model, query, target="activation", groups=2, rank=0, tokens=TOKENS):
    """Returns error / bound of the target, of rows between layers, and of row i."""
    position = np.array([i for i in range(tokens.size) if i != query], np.int32)
    symbol = (1 - tokens[position]).astype(np.int32)
    tokens = jnp.asarray(tokens)
    base = prepare_screen(model, tokens, query, target)
    envelopes = prepare_envelopes(model, base, groups, rank)
    options = {"query": query, "target": target, "row_tile": tokens.size}
    found, states = _screen(
        ScreenLevel(model, tokens, base, envelopes),
        jnp.asarray(position),
        jnp.asarray(symbol),
        **options,
    )
    run = _pass(jax.tree.structure(model), len(model.layers))
    before = [np.asarray(x) for x in run(model, tokens)]
    ratios = {"target": 0.0, "rows": 0.0, "reads": 0.0, "own": 0.0}
    reader = LastReads(model.layers[-1], base.last.prepared.queries[:, 0])
    values = max(np.abs(x).max() for x in before)
    for k, (i, s) in enumerate(zip(position, symbol, strict=True)):
        after = [np.asarray(x) for x in run(model, tokens.at[i].set(int(s)))]
        change = [b - a for a, b in zip(before, after, strict=True)]
        largest = max(values, *(np.abs(x).max() for x in after))
        rounding = 1e-12 * largest * max(1.0, largest)
        exact = change_target(
            model,
            jnp.asarray(before[-1][query]),
            jnp.asarray(change[-1][query]),
            target,
        )
        error = np.linalg.norm(np.asarray(exact) - np.asarray(found.change)[k])
        _raise(ratios, "target", error, float(found.error[k]), rounding)
        for state, moved in zip(states, change[1:], strict=False):
            rest = np.linalg.norm(moved - np.asarray(state.known)[:, :, k], axis=1)
            own = np.linalg.norm(moved[i] - np.asarray(state.own)[:, k])
            rest[i] = 0
            for error, bound in zip(rest, np.asarray(state.unknown)[:, k], strict=True):
                _raise(ratios, "rows", error, bound, rounding)
            _raise(ratios, "own", own, float(state.own_unknown[k]), rounding)
        rest = change[-2] - np.asarray(states[-1].known)[:, :, k]
        rest[i] = 0
        bounds = np.asarray(states[-1].reads)[:, :, k]
        for norm, bound in zip(
            read_norms(reader, before[-2], rest), bounds, strict=True
        ):
            for one, most in zip(norm, bound, strict=True):
                _raise(ratios, "reads", one, most, rounding)
    return ratios


def read_norms(reader, rows, rest):
    """Norms of what the last layer reads of changes of its input rows, to first order."""
    derivative = np.asarray(reader.derivative(jnp.asarray(rows)))
    moved = (derivative @ rest[..., None])[..., 0]
    found, first = [], 0
    for h, e in (x.shape[:2] for x in reader.maps):
        part = moved[:, first : first + h * e].reshape(-1, h, e)
        found.append(np.linalg.norm(part, axis=-1))
        first += h * e
    return np.concatenate(found, axis=1)


def _raise(ratios, name, error, bound, rounding):
    if np.isnan(bound) or np.isinf(bound):
        return  # says nothing, and is not used
    excess = max(error - rounding, 0.0)
    if excess > 0:
        ratios[name] = max(ratios[name], excess / max(bound, 1e-300))


_screen = jax.jit(screen_states, static_argnames=("query", "target", "row_tile"))

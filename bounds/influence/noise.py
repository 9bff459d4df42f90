"""What rounding makes of a pass: samples of its errors, to first order, at every row.

Every number z that a pass stores is off by its own rounding, at most e(z) u, u the unit
roundoff and e(z) what the operation that made it read, as it is at this input. To first order
the target t is then off by u sum_z dt/dz e(z) x_z, |x_z| <= 1. Where roundings go either way
independently of one another that is a sum of independent terms of mean 0, and beyond

    L u sqrt(sum_z (dt/dz e(z))^2)

with probability 2 exp(-L^2 / 2) at most (Hoeffding 1963, Theorem 2; of rounding, Higham and
Mary 2019). The sum of squares is the mean of (sum_z dt/dz e(z) s_z)^2 over random signs s:
one tangent of the pass along e s is a sample of it, for all rows at once, and no product of
norms of matrices stands for what the layers make of an error.

Two ways in which roundings do agree are kept. Rows that are equal round alike: half of the
samples have one sign for all rows. Sums over n keys are often of equal terms: they
count n times, not sqrt(n), and for all entries of a head together. A product of m terms
has m partial sums; taken in an order that has nothing to do with its terms these are about
the whole sum and the root of the terms' squares at most: e = sqrt(m) (|sum| + root).

What a pass rounds depends on its input: half of the samples are of changed inputs.

Shapes: n rows, r watched, d width, h heads, v = d_v; t samples.
"""

import functools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.problem import Problem
from bounds.influence.row_targets import LogProbabilitySum, Pooled, read_watched
from bounds.influence.sizes import bias_rounding, scaled_norm, score_rounding
from bounds.influence.target import exit_program
from bounds.influence.targets import TargetOperation
from bounds.numbers.rounding import SCALAR_STEPS, summation_depth
from bounds.readings.rules import no_rule
from jax_models import Transformer
from jax_models.model.attending import (
    KeyStore,
    per_row,
    project_queries,
    score_scale,
    store_keys,
    summarise,
)
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.rows import (
    Activation,
    Affine,
    Join,
    Norm,
    Operation,
    Product,
    Program,
    Step,
    Sum,
)
from jax_models.model.transformer import (
    embedded,
    encode_positions,
    join_heads,
    of_input,
    scores_per_row,
)
from jax_models.run.blocks import key_tile, map_rows, row_block

HIGHEST = jax.lax.Precision.HIGHEST
# A sample takes some three passes: one for so many substitutions, in pairs, and no more.
SUBSTITUTIONS_PER_SAMPLE, MOST = 256, 8
# A target of so many entries has their squares to tell its deviation from; others take all
# samples, of which one alone is near zero too often.
ENTRIES = 16


class Noise:
    """Adds to numbers what they may be off by, under random signs, times `scale`."""

    def __init__(self, key: Array, alike: Array, scale: Array) -> None:
        """Holds the key of one layer's signs, and whether all rows have the same."""
        self._key, self._alike, self._scale = key, alike, scale
        self._drawn = 0

    def __call__(self, numbers: Array, size: Array) -> Array:
        """Returns numbers + scale size signs; rows are along the last axis but one.

        Args:
            numbers: [..., r, d].
            size: what they may be off by [..., r, d], or together [..., r, 1].
        """
        self._drawn += 1
        key = jax.random.fold_in(self._key, self._drawn)
        shape = (*numbers.shape[:-1], size.shape[-1])
        own = jax.random.rademacher(key, shape, numbers.dtype)
        one = jax.random.rademacher(key, (*shape[:-2], 1, shape[-1]), numbers.dtype)
        size = jax.lax.stop_gradient(size)
        return numbers + self._scale * size * jnp.where(self._alike, one, own)

    def run(self, program: Program, given: Mapping[str, Array]) -> Array:
        """Returns the output of a row program, every step of it rounded.

        Args:
            program: of rows.
            given: those it starts from.
        """

        def rule(step: Step, *read: Array) -> Array:
            return rounded(step.operation, self, *read)

        return program.run(given, rule)[program.output]


@functools.singledispatch
def rounded(operation: Operation, noise: Noise, *rows: Array) -> Array:
    """Returns what an operation writes, with the noise of its rounding.

    Args:
        operation: of rows.
        noise: adds it.
        rows: what it reads [r, d].
    """
    raise no_rule("rounded", operation)


@rounded.register(Sum)
@rounded.register(Product)
def _(operation: Operation, noise: Noise, *rows: Array) -> Array:
    found = operation(*rows)
    return noise(found, jnp.abs(found))


@rounded.register
def _(operation: Join, noise: Noise, *rows: Array) -> Array:
    return operation(*rows)


@rounded.register
def _(operation: Affine, noise: Noise, *rows: Array) -> Array:
    (row,) = rows
    found = operation(row)
    return noise(found, _summed(found, operation.weight, row))


@rounded.register
def _(operation: Activation, noise: Noise, *rows: Array) -> Array:
    found = operation(*rows)
    return noise(found, (operation.roundings + 4) * jnp.abs(found))


@rounded.register
def _(operation: Norm, noise: Noise, *rows: Array) -> Array:
    # Mean and deviation are one number of all entries: so is what they are off by. The
    # mean's error comes behind the centring, which would take it away, and is none where
    # nothing is taken away of what all entries share.
    (row,) = rows
    steps = math.sqrt(row.shape[-1]) + 4
    centred = operation.centre(row)
    deviation = operation.deviation(centred)
    mean = jnp.abs(row - centred).max(axis=-1, keepdims=True)
    shift = mean + jnp.sqrt((row**2).mean(axis=-1, keepdims=True) / row.shape[-1])
    shared = 1 - operation.centre(jnp.ones_like(operation.scale))
    scaled = centred / deviation * operation.scale
    found = noise(operation(row), 4 * (jnp.abs(scaled) + jnp.abs(operation.bias)))
    nothing = jnp.zeros_like(mean)
    shifted = noise(nothing, steps * shift) * shared / deviation * operation.scale
    return found + shifted + scaled * noise(nothing, jnp.full_like(mean, steps))


@rounded.register
def _(operation: TargetOperation, noise: Noise, *rows: Array) -> Array:
    (row,) = rows
    found = operation(row)
    return noise(found, _target_size(row, found))


@functools.singledispatch
def _watched(target: Any, model: Transformer, noise: Noise, rows: Array) -> Array:
    """The targets [g, c] of rows behind the last layer [r, d], every step rounded."""
    return noise.run(exit_program(model, target), {"y": rows})


@_watched.register
def _(target: Pooled, model: Transformer, noise: Noise, rows: Array) -> Array:
    final = noise.run(exit_program(model, "activation"), {"y": rows})
    mean = (len(rows) + SCALAR_STEPS) * jnp.abs(final).mean(axis=0)
    steep = target.steepness(model, final)
    found = read_watched(model, final, target)
    return noise(found, mean * steep + (SCALAR_STEPS + len(mean)) * jnp.abs(found))


@_watched.register
def _(
    target: LogProbabilitySum, model: Transformer, noise: Noise, rows: Array
) -> Array:
    logits = noise.run(exit_program(model, "logits"), {"y": rows})
    each = target.each(logits)[:, None]
    each = noise(each, _target_size(logits, each) + len(rows) * jnp.abs(each))
    return each.sum(axis=0, keepdims=True)


def _target_size(logits: Array, found: Array) -> Array:
    """What operations on logits [..., v] are off by: sums of their exponentials."""
    size = jnp.abs(logits).max(axis=-1, keepdims=True)
    return SCALAR_STEPS + jnp.abs(found) + 4 * (size + math.sqrt(logits.shape[-1]))


def _summed(sums: Array, weight: Array, rows: Array) -> Array:
    """What products of rows and a matrix are off by: see the module.

    Args:
        sums: them [..., r, out].
        weight: [..., out, in].
        rows: [r, in].
    """
    squares = jnp.matmul(rows**2, (weight**2).mT, precision=HIGHEST)
    steps = math.sqrt(weight.shape[-1])
    return steps * (jnp.abs(sums) + jnp.sqrt(squares)) + jnp.abs(sums)


def _attend(
    attention: Attention, noise: Noise, inputs: Array, at: Array, own: Array
) -> Array:
    """Returns the heads' outputs of rows [r, h v], every step rounded.

    Args:
        attention: the sublayer.
        noise: of it.
        inputs: what it reads [n, d].
        at: the rows [r].
        own: what it reads of them [r, d].
    """
    n, width = inputs.shape[0], attention.value_width
    store = store_keys(attention, inputs)
    scale = score_scale(attention, n, at)
    queries = project_queries(attention, own, n, at)
    # A score is off by what its sum is, and what turns or norms its sides.
    sides = math.sqrt(attention.key_width) + 2 + attention.placing_steps
    over = per_row(scale) if attention.scoring.bilinear else 1
    asked = _summed(queries * over, attention.query, own) / over
    moved = noise(queries, asked + sides * jnp.abs(queries))
    kept = _summed(store.keys, attention.key_by_head, inputs)
    keys = noise(store.keys, kept + sides * jnp.abs(store.keys))
    worth = _summed(store.values, attention.value_by_head, inputs)
    values = noise(store.values, worth)
    if attention.scoring.bilinear:
        steps = bias_rounding(attention, scale, n)
    else:
        steps = score_rounding(attention, queries, store.keys, scale, n)
    steps = steps + summation_depth(n) + SCALAR_STEPS
    # Beside every value its magnitude: the mean of these is what a mean is off by.
    both = KeyStore(keys, jnp.concatenate([values, jnp.abs(values)], axis=-1))

    def run(block: tuple[Array, Array]) -> Array:
        some, queries = block
        summary = summarise(attention, queries.swapaxes(0, 1), some, both)
        return attention.weighting.read(summary).swapaxes(0, 1)

    block = row_block(at.shape[0], scores_per_row(attention, key_tile(n)))
    found = map_rows(run, (at, moved.swapaxes(0, 1)), block).swapaxes(0, 1)
    heads, sizes = found[..., :width], found[..., width:]
    return join_heads(noise(heads, steps * sizes.max(axis=-1, keepdims=True)))


def _keys(depth: Array, alike: Array) -> Array:
    """A key of the signs that each sample takes at one depth [t]."""
    return jax.random.split(jax.random.fold_in(jax.random.key(0), depth), len(alike))


@jax.jit
def _layer(
    layer: Layer, rows: Array, moved: Array, at: Array, depth: Array, alike: Array
) -> tuple[Array, Array]:
    """A layer's rows [t, r, d] and their errors, of inputs [t, n, d] and of theirs."""

    def one(of: tuple[Array, ...]) -> tuple[Array, Array]:
        y, dy, key, same = of

        def run(y: Array, scale: Array) -> Array:
            noise = Noise(key, same, scale)
            inputs = noise.run(layer.reads, {"y": y})
            heads = _attend(layer.attention, noise, inputs, at, inputs[at])
            return noise.run(layer.writes, {"y": y[at], "heads": heads})

        return jax.jvp(run, (y, jnp.zeros((), y.dtype)), (dy, jnp.ones((), y.dtype)))

    return jax.lax.map(one, (rows, moved, _keys(depth, alike), alike))


@jax.jit
def _enter(model: Transformer, tokens: Array, alike: Array) -> tuple[Array, Array]:
    """The rows before the first layer [t, n, d] of inputs [t, n], and their errors."""

    def one(of: tuple[Array, ...]) -> tuple[Array, Array]:
        x, key, same = of

        def run(scale: Array) -> Array:
            noise, rows = Noise(key, same, scale), embedded(model, x)
            places = encode_positions(of_input(model, x), x.shape[0])
            rows = noise(rows, 4 * (jnp.abs(rows - places) + jnp.abs(places)))
            for operation in () if model.entry is None else model.entry.operations:
                rows = rounded(operation, noise, rows)
            return rows

        one = jnp.ones((), model.dtype)
        return jax.jvp(run, (jnp.zeros_like(one),), (one,))

    return jax.lax.map(one, (tokens, _keys(jnp.int32(0), alike), alike))


@functools.partial(jax.jit, static_argnames="target")
def _leave(
    model: Transformer,
    rows: Array,
    moved: Array,
    depth: Array,
    alike: Array,
    target: Any,
) -> Array:
    """The errors' norms at the target [t, g] of rows behind the last layer [t, r, d]."""

    def one(of: tuple[Array, ...]) -> Array:
        y, dy, key, same = of

        def run(y: Array, scale: Array) -> Array:
            return _watched(target, model, Noise(key, same, scale), y)

        given = y, jnp.zeros((), y.dtype)
        return scaled_norm(jax.jvp(run, given, (dy, jnp.ones((), y.dtype)))[1])

    return jax.lax.map(one, (rows, moved, _keys(depth, alike), alike))


def sample_noise(problem: Problem, entries: int) -> np.ndarray:
    """Returns what one evaluation of each target is off by, in u, the most of samples [g].

    Args:
        problem: about a transformer.
        entries: of a target.
    """
    model, count = problem.model, len(problem.pairs)
    enough = count // SUBSTITUTIONS_PER_SAMPLE if entries >= ENTRIES else MOST
    samples = min(max(2, enough // 2 * 2), MOST)
    tokens = np.repeat(problem.tokens[None], samples, axis=0)
    changed = np.arange(samples // 2)
    chosen = np.linspace(0, count - 1, changed.size).astype(int)
    tokens[changed, problem.position[chosen]] = problem.symbol[chosen]
    alike, last = np.arange(samples) % 2 == 0, len(model.layers)
    everywhere = np.arange(problem.tokens.size, dtype=np.int32)
    found = _enter(model, tokens, alike)
    for depth, layer in enumerate(model.layers, 1):
        at = problem.rows if depth == last else everywhere
        found = _layer(layer, *found, at, depth, alike)
    if not model.layers:
        found = tuple(x[:, problem.rows] for x in found)
    sizes = _leave(model, *found, last + 1, alike, target=problem.target)
    return np.asarray(sizes, np.float64).max(axis=0)

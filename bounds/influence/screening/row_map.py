"""A layer's map of each row after attention: its derivative, and bounds on the rest.

A screen is an estimate of a substitution's effect with a bound on the error; base
values are those of the unchanged input; cotangents are derivatives of the watched
output's entries (`classes`). The row map F takes a row y and its heads' outputs b to
the layer's output row. A known change (p_y, p_b) goes through exactly. Of a further
change e only norms of parts are known (its *sources*: the row itself, then every head).
A *defect* is the part of a change beyond the derivative at the base. Reads are keys,
values and the watched row's scores of the last layer, each by head.

Source: docs/screened.md, sections 2.7, 2.8 and 2.10.
"""

import dataclasses
import functools
import itertools
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from bounds.influence.propagation.pointwise import RowBase
from bounds.influence.screening.defect import Moved, defect, entrywise
from bounds.numbers.norms import contract, spectral_norms
from bounds.readings import pull
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.model.rows import Activation, Affine, Operation, Step

READS = "reads"  # a key among names of rows; no row has this name
# Number and width of parts of a row, of one kind after another.
Parts: TypeAlias = tuple[tuple[int, int], ...]


@pytree
class LastReads:
    """Last layer and its watched row's query: maps from its input rows to reads."""

    # An unknown change e of row m moves a head's key in the last layer by W_k e, its value by
    # W_v e and the score of the watched row by q^T W_k e. Norms of these three, by the parts
    # that make up e, are far below |W_k| |e|, |W_v| |e| and |q| |W_k| |e|.
    layer: Layer
    query: Float[Array, "heads d_k"]  # of the watched row, scaled

    @property
    def maps(self) -> tuple[Float[Array, "heads _ width"], ...]:
        """W_k, W_v and q^T W_k by head; under pre-norm they apply to normed rows."""
        key, value = (
            self.layer.attention.key_by_head,
            self.layer.attention.value_by_head,
        )
        return key, value, contract("he,hed->hd", self.query, key)[:, None]

    @property
    def parts(self) -> Parts:
        """Number of heads and output width of each of the `maps`."""
        return tuple((x.shape[0], x.shape[1]) for x in self.maps)

    @property
    def map_norms(self) -> Float[Array, "reads"]:
        """Upper bounds on spectral norms of `maps`, one for each head of each."""
        return jnp.concatenate([spectral_norms(x) for x in self.maps])

    def derivative(
        self, rows: Float[Array, "rows width"]
    ) -> Float[Array, "*rows maps width"]:
        """Derivative of stacked `maps` at rows; the same for all without pre-norm."""
        maps = jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in self.maps])
        program = self.layer.reads
        return pull(program, {"y": rows}, {program.output: maps})["y"]


@pytree
class RowMap:
    """Norms of the row map's derivatives at every row, by source and by operation."""

    # Inputs and outputs of activations and products are taken entry by entry, other rows as a
    # whole. Named rows are inputs of nonlinear operations, the layer's output, and `READS`.
    base: RowBase  # [r, ...]
    # Norms of the derivatives of the named rows.
    by_source: dict[str, Float[Array, "rows ..."]]  # [r, s], [r, f, s] by entry or part
    # [r]; [r, f] of entries, by either; None by the row's own operation.
    by_defect: dict[str, dict[str, Float[Array, "rows ..."] | None]]
    # |cotangent| of the outputs of nonlinear operations [r], [r, f] by entry.
    weights: dict[str, Float[Array, "rows ..."]]
    # The same of the layer's output, and of the row `y` that it begins with.
    out_weight: Float[Array, "rows"]
    row_weight: Float[Array, "rows"]


def make_row_map(
    layer: Layer,
    base: RowBase,
    # Of the layer's output rows.
    cotangents: Float[Array, "rows classes width"],
    output: Float[Array, "rows width"],
    # The last layer, if it reads these rows.
    reader: LastReads | None = None,
) -> tuple[RowMap, dict[str, Float[Array, "rows classes _"]]]:
    """`RowMap` of rows at the base, and cotangents of the row map's inputs by name."""
    program, (r, _, d) = layer.writes, cotangents.shape
    wanted = pull(program, base.rows, {program.output: cotangents})
    read = {
        name: entrywise(step.operation) for step in program.bent for name in step.inputs
    }
    # Named rows with what is read of them, and by which parts.
    asked: dict[str, tuple[str, Float[Array, ...], Parts | None]] = {}
    for name, entries in {**read, program.output: False}.items():
        width = base.rows[name].shape[-1] if name in base.rows else d
        identity = jnp.eye(width, dtype=cotangents.dtype)
        asked[name] = name, identity, ((width, 1),) if entries else None
    if reader is not None:
        asked[READS] = program.output, reader.derivative(output), reader.parts
    by_source, by_defect, heads = {}, {}, layer.attention.num_heads
    for name, (row, given, parts) in asked.items():
        found = pull(program, base.rows, {row: given})
        norms = functools.partial(_norms, r, parts)
        sources = [norms(found["y"], False)]
        if found["y"] is given and parts is None:
            # The identity's norm, which `spectral_norms` has within a percent.
            sources = [jnp.ones(r, cotangents.dtype)]
        if "heads" in found:
            by_head = jnp.split(found["heads"], heads, axis=-1)
            sources += [norms(x, False) for x in by_head]
        else:  # of rows that do not read attention
            sources += [jnp.zeros_like(sources[0])] * heads
        by_source[name] = jnp.stack(sources, axis=-1)
        by_defect[name] = {
            step.name: None
            if step.name == name
            else norms(found[step.name], entrywise(step.operation))
            for step in program.bent
            if step.name in found
        }
    weights = {
        step.name: _norms(r, None, wanted[step.name], entrywise(step.operation))
        for step in program.bent
    }
    unordered = dataclasses.replace(base, distance=None, nearest=None)
    ends = spectral_norms(cotangents), spectral_norms(wanted["y"])
    return RowMap(unordered, by_source, by_defect, weights, *ends), wanted


@pytree
class MovedOutput:
    """Known changes of a tile of output rows, and norm bounds on unknown ones."""

    known: Float[Array, "rows width substitutions"]
    unknown: Float[Array, "rows substitutions"]  # norm of the rest of the change
    # The part beyond the base derivative, weighed by `RowMap.weights`.
    defect: Float[Array, "rows substitutions"]
    # Norms of the last layer's reads.
    reads: Float[Array, "rows reads substitutions"] | None


def move_row_map(
    layer: Layer,
    rows: RowMap,
    change: Float[Array, "rows width substitutions"],
    heads: Float[Array, "rows concatenated substitutions"],
    sources: Float[Array, "sources rows substitutions"],
) -> MovedOutput:
    """Change after the row map, from a known change and norms of unknown `sources`."""
    program, base = layer.writes, rows.base.rows

    def rule(step: Step, *changes: Float[Array, "..."]) -> Float[Array, "..."]:
        read = tuple(map(base.get, step.inputs))
        return carry_columns(step.operation, read, *changes)

    moved = program.run({"y": change, "heads": heads}, rule)
    defects, weighed = {}, jnp.zeros_like(sources[0])

    def reach(name: str) -> Float[Array, "rows *entries substitutions"]:
        # Any row of the layer's program moves by its base derivative by the sources, and by
        # that by each nonlinear operation before it, times that operation's defect.
        gains = rows.by_source[name]
        total = contract("j...s,sji->j...i", gains, sources)
        for before, gain in rows.by_defect[name].items():
            if before in defects:
                found = defects[before]
                if gain is not None:
                    found = _carry(gain, found)
                total = total + found
        return total

    for step in program.bent:
        read = (Moved(base[name], moved[name], reach(name)) for name in step.inputs)
        found = defect(step.operation, *read)
        weighed = weighed + _carry(rows.weights[step.name], found)
        defects[step.name] = found
    reads = reach(READS) if READS in rows.by_source else None
    return MovedOutput(moved[program.output], reach(program.output), weighed, reads)


@functools.singledispatch
def carry_columns(
    operation: Operation, base: tuple[Any, ...], *changes: Float[Array, "..."]
) -> Float[Array, "rows out substitutions"]:
    """Exact changes of an operation's output rows, from those of its input rows."""
    # A nonlinear operation reads its base inputs [j, d] too.
    if not operation.linear:
        changes = (*base, *changes)
    axes = tuple(2 if x.ndim == 3 else None for x in changes)
    return jax.vmap(operation.change, in_axes=axes, out_axes=2)(*changes)


@carry_columns.register
def _(
    operation: Affine,
    base: tuple[Any, ...],
    *changes: Float[Array, "rows width substitutions"],
) -> Float[Array, "rows out substitutions"]:
    return contract("ab,jbi->jai", operation.weight, *changes)


@carry_columns.register
def _(
    operation: Activation,
    base: tuple[Any, ...],
    *changes: Float[Array, "rows width substitutions"],
) -> Float[Array, "rows out substitutions"]:
    return operation.change(*(row[..., None] for row in base), *changes)


def _norms(
    rows: int,
    parts: Parts | None,
    derivative: Float[Array, "*rows out read"],
    of_entries: bool,
) -> Float[Array, "rows ..."]:
    """Norms of a derivative for each of `parts`; by input entry if `of_entries`."""
    *lead, _, read = derivative.shape

    def norm(maps: Float[Array, "*batch out read"]) -> Float[Array, "..."]:
        if of_entries or maps.shape[-2] == 1:
            axes = -2 if of_entries else (-2, -1)
            return jnp.linalg.norm(maps, axis=axes)
        return spectral_norms(maps)

    if parts is None:
        found = norm(derivative)
    else:
        ends = itertools.accumulate(count * width for count, width in parts[:-1])
        split = jnp.split(derivative, list(ends), axis=-2)
        found = [
            norm(x.reshape(*lead, *part, read))
            for x, part in zip(split, parts, strict=True)
        ]
        found = jnp.concatenate(found, axis=len(lead))
    return found if lead else jnp.broadcast_to(found, (rows, *found.shape))


def _carry(
    gain: Float[Array, "rows *entries"],
    found: Float[Array, "rows *defects substitutions"],
) -> Float[Array, "rows *moved substitutions"]:
    """Bounds on the effect of defects `found`, through a derivative of norms `gain`."""
    terms = "j...f,jfi->j...i" if found.ndim == 3 else "j...,ji->j...i"
    return contract(terms, gain, found)

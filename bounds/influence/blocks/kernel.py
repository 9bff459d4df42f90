"""Compiled programs run on blocks of substitutions, on one device or a mesh of them.

A `Kernel` is a compiled function of a block of substitutions and of arrays that all
blocks share, and does not know where it runs. The base pass is that of the unchanged
input; ties are reports of the closest decisions of hard attention. A substitution is a
position and its new symbol; changes are those of the target, the watched quantity of
the model's output. Products are programs that leave changes NaN whose sums lose digits;
vectors are the slower programs that compute these again. A mesh is a set of devices.
"""

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from bounds.influence.blocks.prefetch import prefetch
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block, Ties
from bounds.influence.substitution import padded
from jax_models.model.transformer import reduce_reports
from jax_models.run.mesh import EVERYWHERE, SHARED_OUT, count_devices, gathered, place
from jax_models.weighting import TieReport

# One program: operations one by one each send their constants to the devices.
_over_devices = jax.jit(reduce_reports)


# A function that is jitted anew would be compiled anew with every block.
@functools.lru_cache(maxsize=64)
def _compiled(
    function: Callable[..., Any], options: tuple[tuple[str, Any], ...], mesh: Mesh
) -> Callable[..., Any]:
    """Compiled program: `function` on each device's share of a block, ties by device."""

    def run(
        shared: Any,
        position: Int[Array, "substitutions"],
        symbol: Int[Array, "substitutions"],
    ) -> Any:
        found, ties = function(*shared, position, symbol, **dict(options))
        # An axis for the devices, along which `SHARED_OUT` joins their reports.
        return found, jax.tree.map(lambda x: x[None], ties)

    specs = (EVERYWHERE, SHARED_OUT, SHARED_OUT)
    return jax.jit(
        jax.shard_map(
            run, mesh=mesh, in_specs=specs, out_specs=SHARED_OUT, check_vma=False
        )
    )


@dataclasses.dataclass(frozen=True)
class Part:
    """Consecutive substitutions that share one program and one block size."""

    start: int
    end: int
    batch: int  # substitutions in a block, on each device
    options: Mapping[str, Any]  # static arguments of the function


@dataclasses.dataclass(frozen=True)
class Kernel:
    """A compiled function of blocks of substitutions, and the arrays they share."""

    # function(*shared, position [p], symbol [p], **options), compiled by `jax.jit`,
    # returns arrays [p, ...], of a method changes [p, watched, classes], and a tie
    # report over all of them, None of a screen.
    function: Callable[..., Any]
    shared: tuple[Any, ...]
    parts: tuple[Part, ...]
    ties: TieReport | None  # of the base pass; None where no layer is hard
    in_flight: int = 1  # blocks under way at a time
    # Computes the changes that the function leaves NaN, where it may leave some. Blocks
    # of such a function replace one symbol by one other; it has one part, and no ties.
    again: "Kernel | None" = None

    def skip(self, done: int) -> "Kernel":
        """Kernel without its first `done` substitutions, which are whole blocks."""
        left = (x for x in self.parts if x.end > done)
        parts = (dataclasses.replace(x, start=max(x.start, done)) for x in left)
        return dataclasses.replace(self, parts=tuple(parts))

    def in_blocks(self, batch: int) -> "Kernel":
        """Kernel with blocks of `batch` substitutions; its kernel `again` is unchanged."""
        parts = tuple(dataclasses.replace(x, batch=batch) for x in self.parts)
        return dataclasses.replace(self, parts=parts)

    def sized_as(self, other: "Kernel") -> "Kernel":
        """Kernel with blocks of the size of the largest blocks of `other`."""
        again = self.again
        if other.again is not None:
            if again is None:  # vectors, where the other has products
                return self.sized_as(other.again)
            again = again.sized_as(other.again)
        sized = self.in_blocks(max(part.batch for part in other.parts))
        return dataclasses.replace(sized, again=again)


def run_kernel(kernel: Kernel, request: InfluenceRequest) -> Iterator[Block]:
    """Yields by block, in order: changes of the target, with ties of all blocks so far."""
    if kernel.again is not None:
        yield from _run_alike(kernel, kernel.again, request)
        return
    seen = None if kernel.ties is None else Ties.of(kernel.ties)
    where = request.position, request.symbol
    for these, changes, ties in run_blocks(kernel, *where, request.mesh):
        # One transfer; the blocks after this one are queued already.
        changes, ties = jax.device_get((changes, None if seen is None else ties))
        if seen is not None:
            seen = seen.merge(Ties.of(ties))
        yield Block(changes[: these.stop - these.start], seen)


# Blocks of substitutions that are sorted by their symbols at a time: at least, and for each
# change of symbol, whose last block is short.
SORTED, SORTED_EACH = 32, 4
# The share of the first block that may be NaN; if more is, all is computed again.
MOST_AGAIN = 0.25


def _run_alike(
    kernel: Kernel, again: Kernel, request: InfluenceRequest
) -> Iterator[Block]:
    """Yields changes of the target in order, computed in blocks of one symbol change."""
    (part,), gave_up = kernel.parts, False
    every = symbol_changes(request)

    def by_vectors(
        these: Int[np.ndarray, "substitutions"],
    ) -> Float[np.ndarray, "substitutions watched classes"]:
        # Blocks of one size, so that one program computes any number.
        whole = dataclasses.replace(again.parts[0], start=0, end=these.size)
        of_these = dataclasses.replace(again, parts=(whole,))
        return np.concatenate(list(_found(of_these, request, these)))

    size = part.batch * max(SORTED, SORTED_EACH * np.unique(every).size)
    for start in range(part.start, part.end, size):
        end = min(start + size, part.end)
        kinds = every[start:end]
        order = np.argsort(kinds, kind="stable")
        turns = (np.flatnonzero(np.diff(kinds[order])) + 1).tolist()
        if start == part.start:
            # The first block tells for all whether products are worth their time: from the
            # middle, as under a causal mask the first positions lose most digits.
            alike = slice(min([*turns, order.size]))
            order[alike] = np.roll(order[alike], -(alike.stop // 2))
        found = []
        if not gave_up:
            ends = itertools.pairwise([0, *turns, order.size])
            parts = (dataclasses.replace(part, start=a, end=b) for a, b in ends)
            each = dataclasses.replace(kernel, parts=tuple(parts), again=None)
            with contextlib.closing(_found(each, request, start + order)) as blocks:
                found.append(next(blocks))
                # The same ones on any number of devices.
                lost = np.isnan(found[0][: part.batch]).any(axis=(1, 2))
                gave_up = start == part.start and lost.mean() > MOST_AGAIN
                if not gave_up:
                    found += blocks
        if gave_up:
            # In blocks of the same bounds: all runs of a radius have blocks alike, though
            # one may lose digits where another does not.
            yield Block(by_vectors(np.arange(start, end)), None)
            continue
        changes = np.concatenate(found)[np.argsort(order)]
        (lost,) = np.nonzero(np.isnan(changes).any(axis=(1, 2)))
        if lost.size:
            changes[lost] = by_vectors(start + lost)
        yield Block(changes, None)


def symbol_changes(request: InfluenceRequest) -> Int[np.ndarray, "substitutions"]:
    """Code number of the exchanged symbols (old, new) of each substitution."""
    old = request.tokens[request.position].astype(np.int64)
    return old * request.pairs.vocab_size + request.symbol


def _found(
    kernel: Kernel, request: InfluenceRequest, these: Int[np.ndarray, "substitutions"]
) -> Generator[Float[np.ndarray, "substitutions watched classes"], None, None]:
    """Yields the changes of the target under substitutions `these`, by block."""
    where = request.position[these], request.symbol[these]
    # Who stops early has what is under way waited for, and the rest not begun.
    with contextlib.closing(run_blocks(kernel, *where, request.mesh)) as blocks:
        for block, changes, _ in blocks:
            yield jax.device_get(changes)[: block.stop - block.start]


def run_blocks(
    kernel: Kernel,
    position: Int[np.ndarray, "substitutions"],
    symbol: Int[np.ndarray, "substitutions"],
    mesh: Mesh | None,
) -> Generator[tuple[slice, Any, Any], None, None]:
    """Yields (slice of substitutions, results, ties) by block, the last results padded."""
    # Programs of many devices meet in collectives: one thread starts them, in order.
    threads, devices, function = mesh is None, count_devices(mesh), kernel.function
    shared = kernel.shared  # put there once, not with every block
    if mesh is None:
        shared = jax.device_put(shared)
    else:
        shared = jax.tree.map(lambda x: place(x, mesh, EVERYWHERE), shared)

    def start_block(part: Part, block: slice) -> tuple[slice, Any, Any]:
        # Of one size on any number of devices, so that a substitution is computed alike.
        size = part.batch * devices
        filled = padded(position[block], size), padded(symbol[block], size)
        if mesh is None:
            return block, *function(*shared, *jax.device_put(filled), **part.options)
        # Substitutions are the batch axis: a device computes its share as it would a whole
        # block of that size, so that only results are communicated.
        compiled = _compiled(function, tuple(sorted(part.options.items())), mesh)
        shares = (place(x, mesh, SHARED_OUT) for x in filled)
        found, ties = compiled(shared, *shares)
        if jax.process_count() > 1:  # else what is under way is not waited for
            found, ties = gathered((found, ties))
        return block, found, None if ties is None else _over_devices(ties)

    calls = (
        functools.partial(start_block, part, slice(start, min(start + size, part.end)))
        for part in kernel.parts
        for size in [part.batch * devices]
        for start in range(part.start, part.end, size)
    )
    return prefetch(calls, kernel.in_flight, threads)

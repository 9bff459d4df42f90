"""How a method's substitutions run: in blocks of one size, several under way at a time.

A `Kernel` is a compiled function of a block of substitutions and of arrays that all
blocks share. Where it runs, on one device or on a mesh of them, it does not know.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from bounds.influence.base import Block, Problem, Ties
from bounds.influence.substitution import padded
from bounds.influence.under_way import ahead


@dataclasses.dataclass(frozen=True)
class Part:
    """Consecutive substitutions that share one program."""

    start: int
    end: int
    batch: int  # substitutions in a block, on each device
    options: Mapping[str, Any]  # static arguments of the function


@dataclasses.dataclass(frozen=True)
class Kernel:
    """What a method runs on every block of substitutions.

    `function(*shared, position [p], symbol [p], **options)` returns norms [p] and a tie
    report over all of them. It is compiled by `jax.jit`.
    """

    function: Callable[..., Any]
    shared: tuple[Any, ...]
    parts: tuple[Part, ...]
    # From influences [p] and the index of the substitutions that they are of, to radii [p].
    radius: Callable[[np.ndarray, Any], np.ndarray]
    ties: Ties | None  # of the base pass; None where no layer is hard
    # Blocks under way at a time.
    in_flight: int = 1


# Runs the function on a block of any size that `devices` divides.
Runner = Callable[[Kernel, Mapping[str, Any], np.ndarray, np.ndarray], Any]


def run_kernel(
    kernel: Kernel, problem: Problem, run: Runner | None = None, devices: int = 1
) -> Iterator[Block]:
    """Yields the blocks of a problem in order.

    Args:
        kernel: what is run.
        problem: its question.
        run: runs one block and returns norms [p] and ties; on the default device where
            it is None.
        devices: how many devices a block is shared out over.
    """
    seen, done = kernel.ties, 0
    if run is None:  # once, not with every block
        kernel = dataclasses.replace(kernel, shared=jax.device_put(kernel.shared))
    calls = _calls(kernel, problem, run or _on_default_device, devices)
    # Programs of many devices meet in collectives: one thread starts them, in order.
    for count, norms, ties in ahead(calls, kernel.in_flight, threads=run is None):
        # One transfer; the blocks after this one are queued already.
        norms, ties = jax.device_get((norms, None if seen is None else ties))
        influence = np.asarray(norms, np.float64)[:count]
        if seen is not None:
            seen = seen.merge(Ties.of(ties))
        these, done = slice(done, done + count), done + count
        yield Block(influence, kernel.radius(influence, these), seen)


def _on_default_device(
    kernel: Kernel,
    options: Mapping[str, Any],
    position: np.ndarray,
    symbol: np.ndarray,
) -> Any:
    block = jax.device_put((position, symbol))
    return kernel.function(*kernel.shared, *block, **options)


def _calls(
    kernel: Kernel, problem: Problem, run: Runner, devices: int
) -> Iterator[Callable[[], tuple[int, Any, Any]]]:
    """Yields what starts a block and returns its substitutions, their norms, and ties."""

    def start_block(options: Mapping[str, Any], block: slice, size: int) -> Any:
        position, symbol = problem.position[block], problem.symbol[block]
        filled = padded(position, size), padded(symbol, size)
        return position.size, *run(kernel, options, *filled)

    for part in kernel.parts:
        # The same on any number of devices, so that a substitution is computed alike.
        size = min(part.batch, part.end - part.start) * devices
        for start in range(part.start, part.end, size):
            block = slice(start, min(start + size, part.end))
            yield functools.partial(start_block, part.options, block, size)

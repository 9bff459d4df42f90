"""Several blocks under way at a time, so that no processor waits for another.

A block is the work of one call of a compiled program. On an accelerator a call returns
before it has run, so starting the next ones is enough. On a CPU programs started by one
thread run one after the other, and in each there are moments that keep a single core
busy; programs started by several threads fill them.
"""

import collections
import contextlib
import functools
import itertools
import os
import pickle
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
from jax.sharding import Mesh

from jax_models.interrupt import raise_requested
from jax_models.run.mesh import all_say

T = TypeVar("T")

# Settings that a caller may have made by a context manager, which hold in its thread alone.
_SETTINGS: dict[str, Callable[[Any], Any]] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_device": jax.default_device,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_debug_nans": jax.debug_nans,
    "jax_transfer_guard": jax.transfer_guard,
}
# Calls of each device that are submitted before the first of them is waited for.
AHEAD = 2


def prefetch(
    calls: Iterator[Callable[[], T]],  # each starts one block
    count: int,
    threads: bool = True,  # several may make calls, on a CPU
) -> Generator[T, None, None]:
    """Yields the results of calls in order, `count` of them under way at a time."""
    # The calling thread makes the first call, so that the program is compiled once.
    workers = min(count, os.cpu_count() or 1)
    first = next(calls, None)
    if first is None:
        return
    made = first()
    calls = itertools.chain([lambda: made], calls)
    if not threads or workers < 2 or jax.default_backend() != "cpu":
        yield from in_turn(calls, count)
        return
    yield from _in_threads(
        {0: ThreadPoolExecutor(workers)}, ((0, x) for x in calls), count
    )


def _in_threads(
    pools: Mapping[int, ThreadPoolExecutor],
    calls: Iterator[tuple[int, Callable[[], T]]],  # with the key of the pool of each
    count: int,
) -> Generator[T, None, None]:
    """Yields the results of calls in order, `count` of them under way at a time."""
    enter = as_caller()

    def finish(call: Callable[[], T]) -> T:
        with enter():
            return jax.block_until_ready(call())

    def submit(k: int, call: Callable[[], T]) -> Future[T]:
        return pools[k].submit(finish, call)

    submitted = (functools.partial(submit, *one) for one in calls)
    try:
        for future in in_turn(submitted, count):
            yield future.result()
    finally:
        # Who stops early waits for what runs, not for what has not begun.
        for pool in pools.values():
            pool.shutdown(cancel_futures=True)


def as_caller() -> Callable[[], contextlib.ExitStack]:
    """Function that enters the calling thread's JAX settings in another thread."""
    # Settings made by a context manager hold in the thread that made them alone.
    settings = {name: getattr(jax.config, name) for name in _SETTINGS}

    def enter() -> contextlib.ExitStack:
        with contextlib.ExitStack() as stack:
            for name, value in settings.items():
                if getattr(jax.config, name) != value:
                    stack.enter_context(_SETTINGS[name](value))
            return stack.pop_all()

    return enter


def in_turn(calls: Iterator[Callable[[], T]], count: int) -> Generator[T, None, None]:
    """Makes calls; yields each result after `count` - 1 more, or after the last one."""
    under_way = collections.deque()
    for call in calls:
        # A signal leaves a request to end, which is met between two blocks.
        raise_requested()
        under_way.append(call())
        if len(under_way) >= count:
            yield under_way.popleft()
    yield from under_way


def distribute(
    mesh: Mesh,  # of `device_mesh`; call k runs on device k modulo their number
    calls: Sequence[Callable[[Any], T]],  # of `shared`; the same in all processes
    shared: Any,  # a pytree, put on every device of this process
) -> Iterator[T]:
    """Yields the results of calls in order, in every process; devices take calls in turn."""
    # For work whose shapes are found on the host as it goes, which no one program on all
    # devices can do. A call finds on its device what it would find on any other, so that
    # results are those of one device to the bit.
    devices, here = list(mesh.devices.flat), jax.process_index()
    size = len(devices)
    mine = [k for k in range(len(calls)) if devices[k % size].process_index == here]
    held = {at: jax.device_put(shared, devices[at]) for at in {k % size for k in mine}}

    def make(k: int) -> T:
        with jax.default_device(devices[k % size]):
            return calls[k](held[k % size])

    # One thread for a device starts its calls in order.
    pools = {at: ThreadPoolExecutor(1) for at in held}
    there = ((k % size, functools.partial(make, k)) for k in mine)
    made = _in_threads(pools, there, AHEAD * len(held))
    if jax.process_count() == 1:
        yield from made
        return
    for first in range(0, len(calls), size):
        turn = range(first, min(first + size, len(calls)))
        told = pickle.dumps({k: next(made) for k in turn if k in mine})
        found = {k: x for one in all_say(told) for k, x in pickle.loads(one).items()}
        yield from map(found.__getitem__, turn)

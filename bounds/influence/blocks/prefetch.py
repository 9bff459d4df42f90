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
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from jax_models.interrupt import raise_requested

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
    calls = itertools.chain([_returning(first())], calls)
    if not threads or workers < 2 or jax.default_backend() != "cpu":
        yield from in_turn(calls, count)
        return
    enter = as_caller()

    def finish(call: Callable[[], T]) -> T:
        with enter():
            return jax.block_until_ready(call())

    pool = ThreadPoolExecutor(workers)

    def submit(call: Callable[[], T]) -> Future[T]:
        return pool.submit(finish, call)

    try:
        submitted = (functools.partial(submit, call) for call in calls)
        for future in in_turn(submitted, count):
            yield future.result()
    finally:
        # Who stops early waits for what runs, not for what has not begun.
        pool.shutdown(cancel_futures=True)


def _returning(value: T) -> Callable[[], T]:
    return lambda: value


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
    # From a result to a tree of arrays, of the same shapes for all results and None,
    # whose entries are not read; `read` is its inverse.
    write: Callable[[T | None], Any],
    read: Callable[[Any], T],
) -> Iterator[T]:
    """Yields the results of calls in order, in every process; devices take calls in turn."""
    # For work whose shapes are found on the host as it goes, which no one program on all
    # devices can do. A call finds on its device what it would find on any other, so that
    # results are those of one device to the bit.
    devices = list(mesh.devices.flat)
    here, places = jax.process_index(), _places(devices)
    own = [k for k, (process, _) in enumerate(places) if process == here]
    mine = [k for k in range(len(calls)) if k % len(devices) in own]
    made = _make(devices, [(k, calls[k]) for k in mine], shared)
    if jax.process_count() == 1:
        yield from made
        return
    most = 1 + max(slot for _, slot in places)
    for first in range(0, len(calls), len(devices)):
        turn = range(first, min(first + len(devices), len(calls)))
        held = [next(made) if k in mine else None for k in (first + j for j in own)]
        # Gathered trees have one structure, whatever number of devices a process has.
        held += [None] * (most - len(held))
        told = multihost_utils.process_allgather([write(one) for one in held])
        for k in turn:
            process, slot = places[k - first]
            yield read(jax.tree.map(lambda x, p=process: x[p], told[slot]))


def _places(devices: list[Any]) -> list[tuple[int, int]]:
    """Process of each device, and the device's number among that process's."""
    seen: dict[int, int] = {}
    places = []
    for one in devices:
        slot = seen.get(one.process_index, 0)
        places.append((one.process_index, slot))
        seen[one.process_index] = slot + 1
    return places


def _make(
    devices: list[Any], calls: list[tuple[int, Callable[[Any], T]]], shared: Any
) -> Iterator[T]:
    """Makes numbered calls on their devices, and yields their results in order."""
    numbers = sorted({k % len(devices) for k, _ in calls})
    held = {k: jax.device_put(shared, devices[k]) for k in numbers}
    # One thread for a device starts its calls in order.
    pools = {k: ThreadPoolExecutor(1) for k in numbers}
    enter = as_caller()

    def finish(at: int, call: Callable[[Any], T]) -> T:
        with enter(), jax.default_device(devices[at]):
            return jax.block_until_ready(call(held[at]))

    def submit(k: int, call: Callable[[Any], T]) -> Future[T]:
        at = k % len(devices)
        return pools[at].submit(finish, at, call)

    try:
        submitted = (functools.partial(submit, *one) for one in calls)
        for future in in_turn(submitted, AHEAD * len(numbers)):
            yield future.result()
    finally:
        for pool in pools.values():
            pool.shutdown(cancel_futures=True)

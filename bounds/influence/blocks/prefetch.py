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
import queue
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
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
    found = first()
    calls = itertools.chain([lambda: found], calls)
    if not threads or workers < 2 or jax.default_backend() != "cpu":
        return (yield from in_turn(calls, count))
    yield from _in_threads(calls, count, workers)


def _in_threads(
    calls: Iterator[Callable[[], T]], count: int, workers: int
) -> Generator[T, None, None]:
    """Yields the results of calls in order, made by threads, `count` under way at a time."""
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


def as_caller() -> Callable[[], AbstractContextManager[None]]:
    """Function that enters the calling thread's JAX settings in another thread."""
    # Settings made by a context manager hold in the thread that made them alone.
    settings = {name: getattr(jax.config, name) for name in _SETTINGS}

    @contextlib.contextmanager
    def enter() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name, value in settings.items():
                if getattr(jax.config, name) != value:
                    stack.enter_context(_SETTINGS[name](value))
            yield

    return enter


def in_turn(calls: Iterator[Callable[[], T]], count: int) -> Generator[T, None, None]:
    """Yields results of calls in order, each once `count` - 1 more (or all) are made."""
    under_way = collections.deque()
    for call in calls:
        # A signal leaves a request to end, which is met between two blocks.
        raise_requested()
        under_way.append(call())
        if len(under_way) >= count:
            yield under_way.popleft()
    yield from under_way


def distribute(
    mesh: Mesh,  # of `device_mesh`; the process of device k makes every k-th call
    calls: Sequence[Callable[[Any], T]],  # of `shared`; the same in all processes
    shared: Any,  # a pytree, put on every device of this process
    empty: T,  # a pytree of arrays of the shapes of all results; its entries are not read
) -> Iterator[T]:
    """Yields the results of calls in order, in every process, each made on one device."""
    # For work whose shapes are found on the host as it goes, which no one program on all
    # devices can do. A call finds on any device what it would find on any other, so that
    # results are those of one device to the bit.
    devices, here = list(mesh.devices.flat), jax.process_index()
    owners = [devices[k % len(devices)].process_index for k in range(len(calls))]
    mine = [call for call, owner in zip(calls, owners, strict=True) if owner == here]
    own = [device for device in devices if device.process_index == here][: len(mine)]
    free = queue.SimpleQueue()  # one thread for a device
    for device in own:
        free.put((device, jax.device_put(shared, device)))

    def make(call: Callable[[Any], T]) -> T:
        device, held = free.get()
        try:
            with jax.default_device(device):
                return jax.block_until_ready(call(held))
        finally:
            free.put((device, held))

    made = (functools.partial(make, call) for call in mine)
    made = _in_threads(made, AHEAD * len(own), max(1, len(own)))
    if jax.process_count() == 1:
        return (yield from made)
    for first in range(0, len(calls), len(devices)):
        turn = owners[first : first + len(devices)]
        held = [next(made) if owner == here else empty for owner in turn]
        told = multihost_utils.process_allgather(held)
        for owner, one in zip(turn, told, strict=True):
            yield jax.tree.map(lambda x, owner=owner: x[owner], one)

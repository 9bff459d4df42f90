"""Several blocks under way at a time, so that no processor waits for another.

On an accelerator a call returns before it has run, so starting the next ones is enough.
On a CPU programs started by one thread run one after the other, and in each there are
moments that keep a single core busy; those started by several threads fill them.
"""

import collections
import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax

T = TypeVar("T")

# Settings a caller may have made by a context manager.
_SETTINGS: dict[str, Callable[[Any], Any]] = {
    "jax_enable_x64": jax.enable_x64,
    "jax_default_device": jax.default_device,
    "jax_default_matmul_precision": jax.default_matmul_precision,
    "jax_numpy_dtype_promotion": jax.numpy_dtype_promotion,
    "jax_numpy_rank_promotion": jax.numpy_rank_promotion,
    "jax_debug_nans": jax.debug_nans,
    "jax_transfer_guard": jax.transfer_guard,
}


def ahead(
    calls: Iterator[Callable[[], T]], count: int, threads: bool = True
) -> Generator[T, None, None]:
    """Yields what the calls return, in order, `count` of them under way at a time.

    Args:
        calls: each starts one block. The first is made by the caller's own thread, so
            that the blocks' program is compiled once.
        count: at least 1.
        threads: whether calls may be made by several threads, on a CPU.
    """
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
    """Returns what makes the settings of the calling thread those of another.

    JAX's settings made by a context manager hold in the thread that made them alone.

    Returns:
        To be called, and entered, in the other thread.
    """
    settings = {name: getattr(jax.config, name) for name in _SETTINGS}

    def enter() -> contextlib.ExitStack:
        with contextlib.ExitStack() as stack:
            for name, value in settings.items():
                if getattr(jax.config, name) != value:
                    stack.enter_context(_SETTINGS[name](value))
            return stack.pop_all()

    return enter


def in_turn(calls: Iterator[Callable[[], T]], count: int) -> Generator[T, None, None]:
    """Makes the calls, and yields what they return `count` - 1 calls later.

    Args:
        calls: each starts something.
        count: at least 1.
    """
    under_way = collections.deque()
    for call in calls:
        under_way.append(call())
        if len(under_way) >= count:
            yield under_way.popleft()
    yield from under_way

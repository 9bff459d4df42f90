"""Blocks of a screen, on one device or shared out over a mesh of them.

As elsewhere the substitutions are the batch axis, and the model with its base pass is on
every device. What the host decides by its clock, or reads from a file, the first process
decides and reads for all: they climb one ladder.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bounds.influence.base import Problem
from bounds.influence.screening.envelopes import Envelopes
from bounds.influence.screening.screen import ScreenBase, Screened, screen_block
from jax_models.mesh import EVERYWHERE, SHARED_OUT, gathered, place

StartBlock = Callable[[np.ndarray, np.ndarray], Screened]


def block_starter(
    problem: Problem,
    base: ScreenBase,
    envelopes: tuple[Envelopes, ...],
    row_tile: int | None,
) -> StartBlock:
    """Returns what screens a block of substitutions, positions and symbols [p].

    Args:
        problem: the question; over its mesh, p is a multiple of the devices.
        base: the base and adjoint passes.
        envelopes: of the level.
        row_tile: rows at once.
    """
    options = {"query": problem.query, "target": problem.target, "row_tile": row_tile}
    shared: Any = (problem.model, problem.tokens, base, envelopes)
    if problem.mesh is None:
        shared = jax.tree.map(jax.numpy.asarray, shared)
        return functools.partial(_run_here, shared, options)
    mesh = problem.mesh
    compiled = _compiled(mesh, tuple(options.items()))
    placed = jax.tree.map(lambda x: place(x, mesh, EVERYWHERE), shared)

    def run(position: np.ndarray, symbol: np.ndarray) -> Screened:
        block = (place(x, mesh, SHARED_OUT) for x in (position, symbol))
        found = compiled(placed, *block)
        return gathered(found) if jax.process_count() > 1 else found

    return run


def _run_here(
    shared: Any, options: Any, position: np.ndarray, symbol: np.ndarray
) -> Screened:
    block = jax.device_put((position, symbol))
    return screen_block(*shared, *block, **options)


@functools.lru_cache(maxsize=64)
def _compiled(mesh: Mesh, options: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    """The screen of every device's share."""

    def run(shared: Any, position: jax.Array, symbol: jax.Array) -> Screened:
        return screen_block(*shared, position, symbol, **dict(options))

    specs = (EVERYWHERE, SHARED_OUT, SHARED_OUT)
    return jax.jit(
        jax.shard_map(
            run, mesh=mesh, in_specs=specs, out_specs=SHARED_OUT, check_vma=False
        )
    )

"""Blocks of positions in pieces of some seconds, each saved as soon as it is found.

A run that is stopped loses one piece. The number of positions of a piece follows from the
seconds of the piece before. No value and no key depends on it: a piece is looked up by its
first position.
"""

import time
from typing import Any

from bounds.cli.influence_blocks import REACHED, Blocks, largest_so_far
from bounds.cli.shared.devices import Devices
from bounds.cli.shared.progress import Progress
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, run_cells
from jax_models.errors import InputError

# Intended duration of a piece.
SECONDS = 10.0

Found = dict[str, Any]


def find_pieces(
    store: ResultStore,
    blocks: Blocks,
    devices: Devices,
    progress: Progress,
    *,
    fresh: bool,
) -> tuple[list[Found], Found | None, float]:
    """Results of all pieces, the moves of the largest, and the seconds of all."""
    cells, n = blocks.cells(), len(blocks.asked.tokens)
    devices.agree(cells, [False] * len(cells))
    found: list[Found] = blocks.found
    start, most, seconds = 0, 0, 0.0
    while start < n:
        cell = blocks.cell(start)
        piece = None if fresh else store.find(cell.config, cell.form)
        if piece is not None:
            end = piece.get(REACHED, cell.config["stop"])
            label = f"positions {start} to {end - 1}, from the store"
            progress.note(largest_so_far([*found, piece]))
            progress.skip(label, end - start)
        else:
            cell = _piece(blocks, start, most)
            devices.tell((start, most))
            piece, took = _compute(store, blocks, cell, fresh)
            end = piece.get(REACHED, cell.config["stop"])
            most = max(1, int((end - start) * SECONDS / took))
        found.append(piece)
        seconds += store.seconds(cell.config) or 0.0
        start = end
    devices.tell((n, 0))

    def also(cell: Cell) -> Found:
        nonlocal seconds
        missing = fresh or store.find(cell.config, cell.form) is None
        if devices.agree([cell], [missing])[0]:
            _compute(store, blocks, cell, fresh)
        seconds += store.seconds(cell.config) or 0.0
        return store.find(cell.config, cell.form) or {}

    top = also(blocks.top(blocks.values(found))) if blocks.moves_top else None
    measured = map(also, cells[len(range(0, n, blocks.size)) :])
    return [*found, *measured], top, seconds


def follow_pieces(blocks: Blocks, devices: Devices) -> None:
    """Computes this process's share of the pieces that the leading process lacks."""
    cells, n = blocks.cells(), len(blocks.asked.tokens)
    devices.agree(cells, [False] * len(cells))
    while (told := devices.tell((0, 0)))[0] < n:
        _piece(blocks, *told).compute()
    also = cells[len(range(0, n, blocks.size)) :]  # as the leading one asks
    for cell in [blocks.top(None), *also] if blocks.moves_top else also:
        devices.follow([cell])


def _piece(blocks: Blocks, start: int, most: int) -> Cell:
    """Piece from a position on; the rest of the block is no smaller than allowed."""
    least = blocks.least()
    stop = min(start - start % blocks.size + blocks.size, len(blocks.asked.tokens))
    most = max(1, most // least) * least
    return blocks.cell(start, most if start + most + least <= stop else None)


def _compute(
    store: ResultStore, blocks: Blocks, cell: Cell, fresh: bool
) -> tuple[Found, float]:
    """Computes a cell, saves it in the store, and times it."""
    kept = blocks.asked.checkpoint(cell.config)
    if kept is not None and fresh:
        kept.unlink(missing_ok=True)
    began = time.perf_counter()
    for failure in run_cells(store, [cell]):
        raise InputError(failure.message)
    took = time.perf_counter() - began
    found = store.find(cell.config, cell.form) or {}
    # A screen that did not close may be continued later.
    closed = found and not (blocks.asked.screens and found["left"])
    if kept is not None and closed:
        kept.unlink(missing_ok=True)
    return found, took

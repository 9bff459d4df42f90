"""Differences of two passes are 0 exactly where nothing that is watched can move."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from bounds.influence.problem import Problem
from bounds.influence.result import Block


def still_where_nothing_moves(
    problem: Problem, blocks: Iterator[Block], done: int = 0
) -> Iterator[Block]:
    """Yields blocks of differences, 0 exactly where nothing that is watched can move.

    Two passes differ there by what rounds in either. A scan does it itself, row by row.

    Args:
        problem: about a transformer.
        blocks: of its substitutions, in order.
        done: how many come before them.
    """
    if problem.reading is not None:
        yield from blocks
        return
    moves = problem.reached()[:, 0]
    for block in blocks:
        found = block.influence
        these, done = slice(done, done + found.size), done + found.size
        influence, radius = stilled(moves[these], found, block.radius)
        yield dataclasses.replace(block, influence=influence, radius=radius)


def stilled(
    moves: np.ndarray, found: np.ndarray, radius: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Returns differences and radii [p, ...], 0 where nothing moves and a number was found.

    Args:
        moves: which can move what is watched, broadcastable to them.
        found: the differences.
        radius: theirs, of the same shape.
    """
    still = ~moves & np.isfinite(found)
    return np.where(still, 0, found), np.where(still, 0, radius)

"""Values of a request's substitutions: computed by a method, or enclosed by a screen.

A substitution replaces one token; the influence is the norm of the watched output's
change, a scan a table of such changes. A value is an influence, or an entry (cell) of
that table; its ends are its lower and upper bound. A reading is the number, or numbers,
read off one substitution's change; a scan puts them, or a reduction of them, into its
table. Run 0 is the computation itself. The *move* of a value is its largest distance
from run 0 in reruns whose floats are off by a few roundings; radii (bounds on rounding)
are computed from moves. Ties are near-equal scores of hard attention.
"""

import functools
from collections.abc import Iterator

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from bounds.influence.choice import Choice
from bounds.influence.method import Done, Method, Progress, Run, Screen
from bounds.influence.methods.bucket import blocks_in_bucket
from bounds.influence.methods.function_blocks import (
    evaluation_radii,
    function_base,
    norm_rounding,
)
from bounds.influence.moved import (
    LEAST,
    Readings,
    difference_moves,
    magnitude_of,
    radii_of,
    read_blocks,
    requests,
)
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Enclosures, Ends, Found, Ties
from bounds.influence.rounding import block_of, runs_of, top_of
from bounds.influence.table.layout import Layout
from bounds.influence.table.reductions import NAMED
from bounds.influence.vanishing import not_finite, refuse_vanishing_rows
from bounds.rounding.moved_inputs import RUNS
from bounds.rounding.radii import farthest
from jax_models import Transformer
from jax_models.run.mesh import check_agreement, written_out


def find(
    request: InfluenceRequest, choice: Choice, rounding: Done, run: Run | None = None
) -> Found:
    """Values of all substitutions by a method, or enclosures by a screen.

    Raises `InputError` in every process unless all have one request and choice.
    """
    way, run = choice.way, run or Run()
    refuse_vanishing_rows(request)
    if len(request.pairs) and request.mesh is not None:
        arrays = (request.model, request.tokens, request.position, request.symbol)
        arrays += (jax.tree.leaves(request.target),)  # which its text may not show
        # All or none keep a checkpoint: process 0 reads it for the others. Blocks are of
        # one size in all of them, whatever memory each has.
        asked = (request.query, request.target, way, choice.sizes, request.watched)
        asked += (request.reading, request.precision, rounding, run.checkpoint is None)
        check_agreement(repr(asked).encode() + written_out(arrays, request.mesh))
    if isinstance(way, Screen):
        nothing = not len(request.pairs)
        return Enclosures.nothing() if nothing else way.enclose(request, run, rounding)
    assert isinstance(way, Method)
    return compute_values(request, way, runs_of(rounding), run.progress)


def compute_values(
    request: InfluenceRequest, way: Method, runs: int, progress: Progress | None = None
) -> Found:
    """`Found` of a request by a method: values, and their moves in `runs` reruns."""
    # A cell that is the reading of one substitution moves as that reading does. Other
    # reductions mix substitutions: their results are compared from run to run.
    if request.layout is None or request.layout.reduction.by_cell:
        values, moves, ties = _fill(request, way, runs, progress)
    else:
        tables, ties = run_tables(request, way, runs, progress)
        values, moves = compare(request, tables)
    magnitude = magnitude_of(request, way) if len(request.pairs) else 1.0
    return Found(values, moves, magnitude, ties)


def _fill(
    request: InfluenceRequest, way: Method, runs: int, progress: Progress | None
) -> tuple[Float[np.ndarray, "*axes"], Float[np.ndarray, "*axes"], Ties | None]:
    """Tables of values and moves, NaN in cells without a substitution, and ties."""
    layout, count, ties = request.layout, len(request.pairs), None
    slots = np.arange(count) if layout is None else layout.slots(count)
    axes = (count,) if layout is None else layout.cells.shape
    shape = () if layout is None else layout.shape
    # A target's entries are known from the first block; until then both names are one array.
    values = moves = np.full((int(np.prod(axes)), *shape), np.nan)
    for these, block in _blocks(request, way, runs, progress):
        if values is moves:
            shape = block.values.shape[1:]
            values, moves = np.full((2, len(values), *shape), np.nan)
        # Substitutions that only fill a block up have no cell.
        there = slots[these] >= 0
        at, ties = slots[these][there], block.ties
        values[at], moves[at] = block.values[there], block.moves[there]
    values, moves = values.reshape(*axes, *shape), moves.reshape(*axes, *shape)
    if layout is not None and layout.deletes and layout.of_row:
        for table in (values, moves):  # a deleted token's own row is none
            np.moveaxis(table, 2, 1)[layout.diagonal] = np.nan
    return values, moves, ties


def run_tables(
    request: InfluenceRequest, way: Method, runs: int, progress: Progress | None = None
) -> tuple[list[Float[np.ndarray, "..."]], Ties | None]:
    """Tables of values of run 0 and of `runs` reruns with moved floats; ties of run 0."""
    layout, found, ties = request.layout, [], None
    assert layout is not None
    for run, moved in enumerate(requests(request, runs)):
        # All runs together are one progress: run r of 1 + `runs` begins at its share.
        def report(done: int, total: int, run: int = run) -> None:
            if progress is not None:
                progress((run * total + done) // (1 + runs), total)

        if layout.reduction.by_cell:
            values, _, seen = _fill(moved, way, 0, report)
        else:
            values, seen = _reduce(moved, layout, way, report)
        found.append(values)
        ties = seen if run == 0 else ties
    return found, ties


def _reduce(
    request: InfluenceRequest, layout: Layout, way: Method, progress: Progress
) -> tuple[Float[np.ndarray, "..."], Ties | None]:
    """Table of a reduction over all substitutions' readings, and ties."""
    ties = None

    def values() -> Iterator[Float[np.ndarray, "..."]]:
        nonlocal ties
        for _, block in _blocks(request, way, 0, progress):
            ties = block.ties
            yield block.values

    made = layout.reduction.make(layout, lambda: layout.pieces(values()))
    return made, ties


def compare(
    request: InfluenceRequest, tables: list[Float[np.ndarray, "*axes"]]
) -> tuple[Float[np.ndarray, "*axes"], Float[np.ndarray, "*axes"]]:
    """Table of run 0, and of moves: 0 where no value can change, NaN without reruns."""
    values, *again = tables
    moves = np.full(values.shape, np.nan)
    if again:
        moves = farthest(values.shape, difference_moves(request, values, again))
        moves = np.where(np.isnan(values), np.nan, moves)
    # What may move and did not counts as moved, what cannot does not.
    moves = np.where(moves == 0, LEAST, moves)
    return values, np.where(_still(request, values) & ~np.isnan(values), 0.0, moves)


def _blocks(
    request: InfluenceRequest, way: Method, runs: int, progress: Progress | None
) -> Iterator[tuple[slice, Readings]]:
    """Yields (slice of substitutions, `Readings`) by block; raises if one is not finite."""
    layout, done, largest, farthest_at = request.layout, 0, -np.inf, 0
    if not len(request.pairs):
        return
    blocks = functools.partial(blocks_in_bucket, way)
    for block in read_blocks(request, blocks, runs):
        these = slice(done, done + len(block.values))
        done = these.stop
        sizes = np.abs(block.values).reshape(len(block.values), -1).max(axis=1)
        if not np.isfinite(sizes).all():
            lost = int(np.flatnonzero(~np.isfinite(sizes))[0])
            raise not_finite(request, these.start + lost)
        # Rows of every substitution are not formed again to look for vanishing ones: the
        # largest is the answer, and is checked.
        if sizes.max() > largest:
            largest, farthest_at = sizes.max(), these.start + int(sizes.argmax())
        if layout is not None and layout.zeroes_diagonal:
            own = request.position[these][:, None] == layout.rows
            block.values[own] = block.moves[own] = 0
        yield these, block
        if progress is not None:
            progress(done, len(request.pairs))
    refuse_vanishing_rows(request, farthest_at)


def has_top(request: InfluenceRequest, choice: Choice, rounding: Done) -> bool:
    """True if reruns for radii are to be made of the largest values alone."""
    square = request.layout is not None and request.layout.reduction.square
    # A map needs all positions at once.
    some = len(request.pairs) > 0 and not square
    return rounding == "top" and isinstance(choice.way, Method) and some


def top_rows(
    request: InfluenceRequest, choice: Choice, values: Float[np.ndarray, "rows *axes"]
) -> Int[np.ndarray, "top"]:
    """Sorted indices of the largest values (table rows of a scan) and of some others."""
    sizes = np.nan_to_num(np.abs(values), nan=0.0).reshape(len(values), -1).max(axis=1)
    # A position of a table has a cell for each substitute, so fewer positions fill a block.
    each = 1 if request.layout is None else max(1, request.layout.cells.shape[1])
    return top_of(sizes, max(1, block_of(choice.sizes) // each))


def top_moves(
    request: InfluenceRequest, choice: Choice, rows: Int[np.ndarray, "top"]
) -> Float[np.ndarray, "top *axes"]:
    """Moves of the values at `rows`, which `top_rows` chose."""
    # They fill blocks, so nothing is compiled anew.
    assert isinstance(choice.way, Method)
    some = request.only(rows, block_of(choice.sizes))
    return compute_values(some, choice.way, RUNS).moves


def ends_of(
    request: InfluenceRequest, way: Method | Screen, found: Found, rounding: Done
) -> Ends:
    """Lower and upper ends of all values, and True where they enclose the true value."""
    if isinstance(found, Enclosures):
        return found.lower, found.upper, found.enclosed
    assert isinstance(way, Method)
    values = found.values
    if rounding == "stated":
        radius = _stated(request, values)
    else:
        asked = request, values, found.moves, found.magnitude
        radius = radii_of(*asked, subtracted=way.subtracts)
    # Without a radius both ends are the value itself, and it is an estimate.
    enclosed = ~np.isnan(radius)
    radius = np.where(enclosed, radius, 0.0)
    lower = values - radius
    if request.layout is None or request.layout.reduction.positive:
        # A norm is at least 0, however wide its radius.
        lower = np.maximum(lower, 0)
    return lower, values + radius, enclosed


def _stated(
    request: InfluenceRequest, values: Float[np.ndarray, "*axes"]
) -> Float[np.ndarray, "*axes"]:
    """Radii of a `Callable`'s values by its stated evaluation radii; NaN if unknown."""
    layout = request.layout
    if layout is None:
        width = function_base(request).outputs.shape[1]
        return evaluation_radii(request) + norm_rounding(values, width)
    cells, made = layout.cells, layout.reduction
    radii = np.full(values.shape, np.nan)
    if made.own_axes or made.square:
        return radii  # no radius is known of a function of many cells
    there = np.ma.masked_array(evaluation_radii(request)[cells], cells < 0)
    if not made.by_cell:
        # A maximum is off by at most the largest radius of its cells, a mean by their mean.
        largest = made is NAMED["max"]
        there = there.max(axis=1) if largest else there.mean(axis=1)
    rows = there.ndim
    radii[:] = there.filled(np.nan).reshape(there.shape + (1,) * (values.ndim - rows))
    radii += norm_rounding(np.abs(values), layout.width)
    if layout.zeroes_diagonal:
        # `diagonal` is indexed by position and row.
        np.moveaxis(radii, rows, 1)[layout.diagonal] = 0
    return radii


def _still(
    request: InfluenceRequest, values: Float[np.ndarray, "*axes"]
) -> Bool[np.ndarray, "..."]:
    """Mask of values that no substitution can change; broadcastable to `values`."""
    layout = request.layout
    assert layout is not None
    ours = isinstance(request.model, Transformer)
    # Axes that a reduction made are no positions and rows, and a function may read all
    # tokens.
    if layout.reduction.own_axes or not ours:
        return np.zeros((1,) * values.ndim, bool)
    if layout.reduction.square:
        return layout.diagonal
    reached = request.reached()
    cells = np.zeros((*layout.cells.shape, reached.shape[1]), bool)
    there = layout.cells >= 0
    cells[there] = reached[layout.cells[there]]
    if layout.zeroes_diagonal:
        cells &= ~layout.diagonal[:, None]
    if not layout.reduction.by_cell:
        return np.logical_not(cells.any(axis=1))
    return ~cells.reshape(cells.shape + (1,) * (values.ndim - cells.ndim))

"""Values of substitutions, and how far they move in runs with moved inputs.

A substitution replaces one token, and the target is the watched quantity of the output.
A run with moved inputs is the same computation whose floats are off by a few roundings;
run 0 moves nothing. A base pass is the pass of the unchanged input. A value is a number
read off the target's change by a substitution: an influence (its norm), or an entry of
a scan's table. A move is a value's largest distance from run 0; it is 0 only where the
target cannot change, NaN where no run was made. Radii (bounds on rounding) are made of
the moves (`bounds.rounding.radii`). Ties are near-equal scores of hard attention.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Method
from bounds.influence.methods.function_blocks import function_base
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block, Ties
from bounds.rounding.moved_inputs import float_leaves, move_alike, move_apart
from bounds.rounding.radii import RATIO, farthest, largest_magnitude, usual_radii
from jax_models import Transformer
from jax_models.run.perturbation import UNITS

# Move of a value that may move and did not.
LEAST = 5e-324


class MovedBase(SharedBase):
    """Holder of a base pass, each entry of which is moved by roundings when formed."""

    def __init__(self, run: int) -> None:
        """Starts without a base pass; `run`, counted from 1, draws the roundings."""
        super().__init__()
        self._run = run

    def find(self, request: InfluenceRequest, form: Callable[[], Any]) -> Any:
        """Base pass of a request's model, tokens and rows, its entries off by roundings."""
        return super().find(request, lambda: move_apart(form(), self._run))


def moved_model(model: Transformer, run: int) -> Transformer:
    """Copy of a model with weights moved, not embedding and position code; `run` >= 1."""
    # Sums and differences of embeddings and positions move as they are formed.
    given = {"embedding": model.embedding, "position": model.position}
    return dataclasses.replace(move_alike(model, run), **given)


def moved_request(request: InfluenceRequest, run: int) -> InfluenceRequest:
    """Copy of a request for run `run` (from 1), with model and base pass moved."""
    model: Transformer = request.model

    def form() -> tuple[Transformer, SharedBase]:
        # The base pass is formed anew from moved weights and then moved entry by entry,
        # except for hard attention, whose ties that would break.
        shared = SharedBase() if model.is_hard else MovedBase(run)
        return moved_model(model, run), shared

    moved, shared = request.shared.derive(model, run, form)
    again = dataclasses.replace(request, model=moved, shared=shared, run=run)
    if "places" in vars(request):  # formed already, and positions stay
        vars(again)["places"] = request.places
    return again


@dataclasses.dataclass(frozen=True)
class Readings:
    """Values and moves of a block of substitutions, and ties of all blocks so far."""

    # axes of a scan are [rows] or [rows, classes]
    values: Float[np.ndarray, "substitutions *scan"]
    moves: Float[np.ndarray, "substitutions *scan"]  # NaN without runs
    ties: Ties | None  # of all blocks so far


# From a request in run 0 and a run to the same with moved inputs.
Move: TypeAlias = Callable[[InfluenceRequest, int], InfluenceRequest]


def read_blocks(
    request: InfluenceRequest,
    blocks: Callable[[InfluenceRequest], Iterator[Block]],
    runs: int,  # with moved inputs
    done: int = 0,  # substitutions that come before
    # of a transformer; `moved_request` by default
    move: Move | None = None,
) -> Iterator[Readings]:
    """Yields values and moves of a request's substitutions, block by block.

    Both are 0 where no watched row can move; other moves are not 0.
    """
    asked = map(blocks, requests(request, runs, move))
    for base, *again in zip(*asked, strict=True):
        these = slice(done, done + len(base.changes))
        changes, done = np.asarray(base.changes, np.float64), these.stop
        values = request.read(changes)
        moves = np.full(values.shape, np.nan)
        if again:
            others = [x.changes for x in again]
            each = difference_moves(request, changes, others, request.read)
            moves = farthest(values.shape, each)
        still = np.zeros((), bool)
        if isinstance(request.model, Transformer):
            reached = request.reached(these)
            axes = (1,) * (values.ndim - reached.ndim)
            still = ~reached.reshape(reached.shape + axes) & np.isfinite(values)
        values, moves = np.where(still, 0.0, values), np.where(still, 0.0, moves)
        moves = np.where(~still & (moves == 0), LEAST, moves)
        yield Readings(values, moves, base.ties)


def requests(
    request: InfluenceRequest, runs: int, move: Move | None = None
) -> list[InfluenceRequest]:
    """List of the request, and of its copies for `runs` runs with moved inputs."""
    if isinstance(request.model, Transformer):
        move = move or moved_request
        return [request, *(move(request, run + 1) for run in range(runs))]
    # The parameters of a function go up and down by turns.
    model, turns = request.model, itertools.product(range(runs // 2), (1, -1))

    def moved(run: int, sign: int) -> InfluenceRequest:
        form = lambda: (model.moved(run, sign * _step(request)), SharedBase())
        other, shared = request.shared.derive(model, sign * run, form)
        return dataclasses.replace(request, model=other, shared=shared)

    return [request, *(moved(run + 1, sign) for run, sign in turns)]


def difference_moves(
    request: InfluenceRequest,
    found: Shaped[np.ndarray, "..."],  # in run 0
    again: Sequence[Any],  # in the runs with moved inputs
    read: Callable[[np.ndarray], np.ndarray] = np.abs,  # applied to differences
) -> Iterator[Float[np.ndarray, "..."]]:
    """Yields arrays of distances from run 0, by run (of a `Callable`, by pair of runs)."""
    moved = (np.asarray(x, np.float64) - found for x in again)
    with np.errstate(invalid="ignore", over="ignore"):
        if isinstance(request.model, Transformer):
            for one in moved:
                yield np.abs(read(one))
            return
        # A function's parameters moved by sqrt(u) up and down. Half the difference is the
        # first-order effect of sqrt(u), so `far` times it that of `UNITS` roundings. The sum
        # leaves the curvature, of the order of u, and the roundings inside the function.
        far = UNITS * _step(request)
        # One iterator twice: consecutive runs in pairs.
        for up, down in zip(moved, moved, strict=True):
            bent, along = (np.abs(read(x)) for x in (up + down, up - down))
            yield RATIO * np.maximum(bent, far * along / 2)


def magnitude_of(request: InfluenceRequest, way: Method) -> float:
    """Largest magnitude of outputs if `way` subtracts outputs, else of weights and base."""
    if not isinstance(request.model, Transformer):
        return largest_magnitude((request.model.arrays, function_base(request).outputs))
    shared = request.shared
    # The base pass may not have been formed.
    if not (shared.largest_output if way.subtracts else shared.held is not None):
        way.kernel(request)
    # Numbers far smaller than the outputs leave no trace in differences of outputs.
    if way.subtracts:
        return float(shared.largest_output)
    return largest_magnitude((request.model, shared.held))


def radii_of(
    request: InfluenceRequest,
    values: Float[np.ndarray, "*results"],
    moves: Float[np.ndarray, "*results"],
    magnitude: float,  # of `magnitude_of`
    *,
    subtracted: bool,  # results are differences of two outputs
) -> Float[np.ndarray, "*results"]:
    """Radii of rounding of values from their moves; NaN if value or move is unknown."""
    sizes, known = np.abs(values), np.isfinite(values) & ~np.isnan(moves)
    model = request.model
    ours = isinstance(model, Transformer)
    dtype = model.dtype if ours else function_type(request)
    given = sizes[known], moves[known], dtype, request.tokens.size, max(1.0, magnitude)
    largest = float(sizes[np.isfinite(sizes)].max(initial=0.0))
    radii = np.full(values.shape, np.nan)
    radii[known] = usual_radii(*given, subtracted=subtracted, largest=largest)
    if subtracted or not ours:
        unit = float(jnp.finfo(dtype).eps) / 2
        # Both outputs were rounded at their own size before they were subtracted.
        radii = np.maximum(radii, RATIO**2 * unit * magnitude)
    # Of hard rows alone no decision changed.
    hard = ours and all(layer.attention.weighting.hard for layer in model.layers)
    still = moves <= (LEAST if hard and not subtracted else 0.0)
    radii[known & (values == 0) & still] = 0.0
    return radii


def function_type(request: InfluenceRequest) -> Any:
    """Coarsest float type of a `Callable`'s parameters and results; float64 if none."""
    said = (request.model.arrays, function_base(request).found)
    types = [jnp.result_type(x) for x in float_leaves(said)]
    return max(types, key=lambda x: float(jnp.finfo(x).eps), default=np.float64)


def _step(request: InfluenceRequest) -> float:
    """Relative move of each parameter of a `Callable`: sqrt(u), u the unit roundoff."""
    return (float(jnp.finfo(function_type(request)).eps) / 2) ** 0.5


def found_by(
    method: Method, request: InfluenceRequest
) -> Float[np.ndarray, "substitutions *scan"]:
    """Values of all of a request's token substitutions (at least one) by `method`."""
    return np.concatenate([x.values for x in read_blocks(request, method.blocks, 0)])

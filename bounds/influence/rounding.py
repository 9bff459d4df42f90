"""Choice of the results that have a radius of rounding: all, the largest, or none.

A result is an influence (norm of the output's change when a token is replaced), or an
entry of a table of such changes; a radius bounds its rounding error. A radius takes
`RUNS` more runs of its result, with moved inputs (`bounds.rounding`). All results have one
where that takes about a second of one core, by a count of operations that does not
depend on the machine; beyond that, a block of the largest.
"""

import jax
import numpy as np
from jaxtyping import Float, Int

from bounds.influence.blocks.block_memory import BlockSizes
from bounds.influence.method import Done, Rounding, Way
from bounds.influence.methods.function_blocks import function_base
from bounds.influence.request import InfluenceRequest
from bounds.numbers.kind import ROUNDING, STATED, TOP
from bounds.rounding.moved_inputs import RUNS
from jax_models import InputError, Transformer
from jax_models.run.mesh import count_devices

# The fewest results that have radii under rounding="top".
FEWEST = 16
# Their number where a method has no blocks of one size.
BLOCK = 64
# Operations of one run of all, about a fifth of a second of one core.
OPERATIONS = 2.0**32


def choose_rounding(request: InfluenceRequest, way: Way, asked: Rounding) -> Done:
    """Results that get a radius (all, top, stated or none); raises if `asked` cannot be."""
    if way.requires_all_radii:
        if asked in ("top", "none"):
            raise InputError(
                f"rounding = {asked!r}, but a proposal is decided by radii of all; leave "
                "rounding out, or take another method"
            )
        return "all"
    lack, mend = unsupported_radii(request), "leave rounding out"
    is_stated = lack is None and request.radius is not None
    if is_stated:
        lack, mend = "a radius of every evaluation is stated", "leave one of them out"
    if lack is not None:
        if asked in ("all", "top"):
            raise InputError(f"rounding = {asked!r}, but {lack}; {mend}")
        return "stated" if is_stated and asked != "none" else "none"
    if asked != "auto":
        return asked
    return "all" if operations(request, way.cost(request)) <= OPERATIONS else "top"


def unsupported_radii(request: InfluenceRequest) -> str | None:
    """Reason why no result of a request can have a radius, or None."""
    if request.precision is not None:
        return f"products of {request.precision.name} are estimates"
    if isinstance(request.model, Transformer) or request.radius is not None:
        return None
    if not request.model.params_move:
        return "the function has no array of parameters that could be moved"
    if not function_base(request).deterministic:
        return "the function says another thing of one input when it is asked again"
    return None


def hypotheses_of(rounding: Done) -> tuple[str, ...]:
    """Assumptions under which radii of rounding bound the errors of results."""
    named = {"stated": (STATED,), "all": (ROUNDING,), "top": (ROUNDING, TOP)}
    return named.get(rounding, ())


def runs_of(rounding: Done) -> int:
    """Number of reruns of all substitutions with floats off by a few roundings."""
    return RUNS if rounding == "all" else 0


def top_of(
    values: Float[np.ndarray, "values"], count: int
) -> Int[np.ndarray, "chosen"]:
    """Sorted indices of `count` values: the largest, and a quarter evenly spaced by index."""
    count = min(count, values.size)
    spread = np.linspace(0, values.size - 1, count // 4).astype(np.int64)
    # Stable, so that of equal values the first has the radius.
    order = np.argsort(-values, kind="stable")
    order = order[~np.isin(order, spread)]
    spread = np.unique(spread)
    return np.sort(np.concatenate([spread, order[: count - spread.size]]))


def block_of(sizes: BlockSizes | None) -> int:
    """Number of results with radii under rounding="top", a multiple of the block size."""
    if sizes is None:  # found on the way
        return BLOCK
    size = sizes.substitutions  # on any number of devices, which fill a block up
    return size * -(-FEWEST // size)


def operations(request: InfluenceRequest, passes: float) -> float:
    """Estimated operations of `passes` forward passes on each device, by a formula."""
    model, n = request.model, request.tokens.size
    if not isinstance(model, Transformer):
        return passes * 2.0 * n * model.size
    # A multiplication and an addition for every weight and row; scores and attended values
    # take n d of each more, for every row and layer.
    weights = sum(x.size for x in jax.tree.leaves(model.layers) if hasattr(x, "size"))
    one_pass = 2.0 * n * (weights + 2 * n * model.width * len(model.layers))
    return passes * one_pass / count_devices(request.mesh)

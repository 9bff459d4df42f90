"""Lengths in buckets: inputs of similar length run one set of compiled programs.

A request asks how the target, a quantity of the output, changes when a token is
replaced. Programs are compiled for a length. A request about n tokens is therefore
padded to N, the least of `LENGTHS` not below n, where compiling takes longer than the
padding's operations. Results are those of the input, within their radii (bounds on
rounding).
"""

import bisect
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from bounds.influence.method import Method
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block
from bounds.influence.rounding import operations
from bounds.readings import unsupported_padding
from jax_models import Transformer
from jax_models.model.position import extend_table
from jax_models.model.pytree import map_once

# Shorter inputs have few lengths, longer ones few of a length: theirs are not padded.
SHORTEST, LONGEST = 16, 512
# Every power of two, and four lengths between it and the next: N is below 1.15 n.
LENGTHS = tuple(math.floor(2 ** (k / 5)) for k in range(20, 46))
# Operations of a pass for each position that compiling is worth, on a CPU (about a second
# of one core) and elsewhere.
WORTH = (2.0**34, 2.0**43)
# A list of rows or positions grows with the length where it has this share of all.
MOST = 0.8


def bucket_length(request: InfluenceRequest) -> int | None:
    """Length to which a request's tokens are padded, or None if they are not padded."""
    # Nothing here depends on the substitutions, so that the parts of a sweep agree.
    model, n = request.model, request.tokens.size
    if not SHORTEST <= n <= LONGEST or not isinstance(model, Transformer):
        return None
    # Half precision measures its error by programs of its own, and deletions shorten.
    if request.precision is not None or request.deletes or unsupported_padding(model):
        return None
    if padded_target(request) is None:
        return None
    if operations(request, n) > WORTH[jax.default_backend() != "cpu"]:
        return None
    return LENGTHS[bisect.bisect_left(LENGTHS, n)]


def padded_target(request: InfluenceRequest) -> Any:
    """Target that reads no padding rows; None if the request's target cannot do so."""
    value = request.target_value
    if not value.is_joint or not _grows(request.rows.size, request.tokens.size):
        return request.target
    return value.padded(request.tokens.size)


def padded_request(request: InfluenceRequest) -> InfluenceRequest:
    """Request for the padded input; `request` itself if it is not to be padded."""
    length = bucket_length(request)
    if length is None:
        return request
    n = request.tokens.size
    # The real length enters the masks (`Sight.end`): rows of the input do not see the
    # padding, and rows of the padding see at most themselves, whatever their token.
    tokens = np.pad(request.tokens, (0, length - n), mode="edge")
    watched = None
    if request.watches_many and not request.own:
        # Shapes of programs hold the number of rows: nearly all rows become all of N.
        more = length - n if _grows(request.rows.size, n) else 0
        watched = (*request.rows.tolist(), *range(n, n + more))
    # Blocks are sized for substitutions of the padding too if most positions have some.
    room, places = len(request.pairs), np.unique(request.position).size
    if _grows(places, n):
        room = (places + length - n) * -(-room // places)
    return dataclasses.replace(
        request,
        model=request.shared.derive(
            request.model, ("padded", n), lambda: padded_model(request.model, n, length)
        ),
        tokens=tokens,
        target=padded_target(request),
        pairs=dataclasses.replace(request.pairs, length=length),
        watched=watched,
        room=room,
    )


def padded_model(model: Transformer, length: int, padded: int) -> Transformer:
    """Model for `padded` tokens whose attention sees only the first `length`."""
    # An array is an argument of the programs, so that all lengths share one; `Sight` alone
    # reads it.
    end = jnp.asarray(np.int32(length))

    def hide(layer: Any) -> Any:
        attention = dataclasses.replace(layer.attention, end=end)
        return dataclasses.replace(layer, attention=attention)

    position = extend_table(model.position, length, padded)
    layers = map_once(hide, model.layers)
    return dataclasses.replace(model, layers=layers, position=position)


def _grows(count: int, length: int) -> bool:
    """True if `count` positions are at least the share `MOST` of the length."""
    return count >= MOST * length


def blocks_in_bucket(way: Method, request: InfluenceRequest) -> Iterator[Block]:
    """Yields changes of the target by `way`, from the padded input where it is padded."""
    asked = padded_request(request) if way.by_length else request
    # Without rows of the padding; a target that joins many rows has one result.
    watched = request.rows_each
    for block in way.blocks(asked):
        yield dataclasses.replace(block, changes=block.changes[:, :watched])

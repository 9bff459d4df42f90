"""`fused`: change propagation in kernels of lanes, one substitution each.

Of two layers one kernel goes through all pairs (`fused_pairs`); of more, and where many rows
are watched, one for each layer whose rows have all moved (`fused_layer`). The base pass,
radii and readings are those of `incremental`; what differs is that no array of a (row,
substitution) pair, or of a (row, key) pair, is stored. "auto" does not take it.
"""

import functools
from collections.abc import Iterator

from bounds.influence.fused_layer import lacks_of_fused_layer
from bounds.influence.fused_pairs import lacks_of_fused_pairs
from bounds.influence.incremental import (
    INCREMENTAL,
    propagation_kernel,
    propagation_outline,
    propagation_sizes,
)
from bounds.influence.kernel import run_kernel
from bounds.influence.method import Method
from bounds.influence.problem import Problem
from bounds.influence.result import Block


def _refuse(problem: Problem) -> str | None:
    cannot = INCREMENTAL.refuse(problem)
    if cannot is not None:
        return cannot
    layers = problem.model.layers
    if len(layers) == 1:
        return "it fuses two layers or more, and the model has 1"
    if len(layers) == 2 and not problem.watches_many:
        return lacks_of_fused_pairs(problem.model)
    moved = layers[1:] if problem.watches_many else layers[1:-1]
    return next(filter(None, map(lacks_of_fused_layer, moved)), None)


def _blocks(problem: Problem) -> Iterator[Block]:
    kernel = propagation_kernel(problem, fused=True)
    assert kernel is not None
    yield from run_kernel(kernel, problem)


FUSED = Method(
    name="fused",
    refuse=_refuse,
    cost=INCREMENTAL.cost,
    blocks=_blocks,
    kernel=functools.partial(propagation_kernel, fused=True),
    outline=functools.partial(propagation_outline, fused=True),
    sizes=functools.partial(propagation_sizes, fused=True),
    by_itself=False,
)

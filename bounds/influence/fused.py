"""`fused`: change propagation through two layers in one kernel (`fused_pairs`).

The base pass, blocks, radii and readings are those of `incremental`; what differs is that
no array of a (row, substitution) pair is stored. "auto" does not take it.
"""

import dataclasses
from collections.abc import Iterator

from bounds.influence.fused_pairs import lacks_of_fused
from bounds.influence.incremental import INCREMENTAL
from bounds.influence.kernel import Kernel, Part, run_kernel
from bounds.influence.method import Method
from bounds.influence.outline import Outline
from bounds.influence.problem import Problem
from bounds.influence.result import Block


def _refuse(problem: Problem) -> str | None:
    cannot = INCREMENTAL.refuse(problem)
    if cannot is not None:
        return cannot
    if problem.watches_many:
        return "it watches one row, and the target reads many"
    return lacks_of_fused(problem.model)


def _parts(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(
        dataclasses.replace(part, options={**part.options, "fused": True})
        for part in parts
    )


def _kernel(problem: Problem) -> Kernel:
    kernel = INCREMENTAL.kernel(problem)
    assert kernel is not None
    return dataclasses.replace(kernel, parts=_parts(kernel.parts))


def _blocks(problem: Problem) -> Iterator[Block]:
    yield from run_kernel(_kernel(problem), problem)


def _outline(problem: Problem) -> Outline | None:
    outline = INCREMENTAL.outline(problem)
    assert outline is not None
    return dataclasses.replace(outline, parts=_parts(outline.parts))


FUSED = Method(
    name="fused",
    refuse=_refuse,
    cost=INCREMENTAL.cost,
    blocks=_blocks,
    kernel=_kernel,
    outline=_outline,
    sizes=INCREMENTAL.sizes,
    by_itself=False,
)

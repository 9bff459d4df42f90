"""The largest influence at any depth without computing them all: a certified screen.

For softmax models of two layers and more. Every influence is enclosed; the maximum is
exact where the screen closes, and an enclosure that says so where it does not.

Source: docs/screened.md.
"""

from bounds.influence.method import Screen
from bounds.influence.problem import Problem
from bounds.influence.screening.defect import defect
from bounds.influence.screening.ladder import block_sizes, climb_ladder
from bounds.readings import lacks
from jax_models import Transformer


def _refuse(problem: Problem) -> str | None:
    model = problem.model
    if not isinstance(model, Transformer):
        return "it needs the model's layers, and a bare function has none to see"
    if len(model.layers) < 2:
        return f"it needs two layers, and the model has {len(model.layers)}"
    for depth, layer in enumerate(model.layers, start=1):
        if layer.attention.weighting.hard:
            return (
                f"it needs softmax, and layer {depth} is "
                f"{layer.attention.weighting.name}"
            )
        scoring = layer.attention.scoring
        if not scoring.bilinear and depth > 1:
            return f"it needs dot-product scores, and layer {depth} has {scoring.word} ones"
    return lacks(model.layers, defect)


SCREENED = Screen("screened", _refuse, climb_ladder, block_sizes)

"""Outline of a restriction, as its figure draws it: edges of layers, or free positions."""

import contextlib
from typing import Any

import jax_models as jm
from bounds.restriction.analysis import TooManyBits, possible_edges
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.restriction import Restriction
from bounds.restriction.tabulate import Undecided

# Work of each stage of a search, of those that are outlined.
STAGES = {
    "given": "before the search",
    "layer": "bits are fixed until each row of that layer depends on few",
    "alteration": "bits are fixed at random, then repaired",
    "member": "a member is taken, with one bit free that decides on membership",
    "closing": "bits are fixed until the query's output is constant",
    "reverse pass": "fixed bits that are not needed are freed again",
}
# Positions between which lines can be read.
LEGIBLE = 24


def outline_restriction(model: jm.Transformer, found: Restriction) -> dict[str, Any]:
    """Outline: length `n`, position `query`, and `panels` for n <= 24, else `stages`.

    Panels are two per layer, before and after, each with `tokens` and `edges` (a row and
    the positions that it can attend to; None where it depends on too much); stages have a
    name and the number of positions that are `free` after them.
    """
    outline: dict[str, Any] = {"n": len(found.rho), "query": found.query}
    if outline["n"] > LEGIBLE:
        free = int((found.given == FREE).sum())
        stages = [{"name": one.name, "free": one.free} for one in found.stages]
        return outline | {"stages": [{"name": "given", "free": free}, *stages]}
    panels = []
    for depth, before in enumerate(states_before(model, found)):
        for state, when in ((before, "before"), (found.partial, "after")):
            edges = None
            with contextlib.suppress(TooManyBits, Undecided):
                listed = possible_edges(model, state, found.query, depth)
                edges = [[int(row), [int(p) for p in some]] for row, some in listed]
            panel = {"layer": depth, "when": when, "tokens": state.tokens.tolist()}
            panels.append(panel | {"edges": edges})
    return outline | {"panels": panels}


def states_before(model: jm.Transformer, found: Restriction) -> list[PartialInput]:
    """Partial input of the search at the start of each layer."""
    state = PartialInput(found.given, found.symbols)
    left = {stage.name: stage.partial for stage in found.stages}
    states = []
    for depth in range(len(model.layers)):
        states.append(state)
        state = left.get(f"layer {depth}", state)
    return states

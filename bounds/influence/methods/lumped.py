"""Exact influence by lumping: equal rows of an unmasked model are one class.

An influence is the norm of the output's change by a substitution, one token replaced.
Positions of one class are alike, so that the substitutions fall into few configurations
(class, substitute and, for unique-hard layers, place in the tie order), and each is a
pass over the k classes: O(k^2 d) per layer of width d, whatever the number n of tokens
is. Statement and proof are in docs/lumped.md.
"""

import dataclasses
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from bounds.influence.inputs.classes import MAX_CLASSES, Places, classify, tie_orders
from bounds.influence.method import Method
from bounds.influence.propagation.class_layers import run_configurations
from bounds.influence.request import InfluenceRequest, one_row
from bounds.influence.result import Block, merge_ties
from bounds.influence.table.layout import choose
from bounds.readings import unsupported_attention, unsupported_layers
from jax_models import Transformer

# Substitutions of a block.
BLOCK = 2**18


def refuse_model(model: object) -> str | None:
    """Reason why a model's rows do not fall into classes on any input, or None."""
    if lack := unsupported_layers(model):
        return lack
    assert isinstance(model, Transformer)
    if lack := unsupported_attention(model.layers):
        return lack
    for depth, layer in enumerate(model.layers):
        attention = layer.attention
        if not attention.sight.everything:
            return (
                f"it needs attention without a mask, and layer {depth} has mask "
                f"{attention.mask!r}, so that equal rows see different keys"
            )
        # A temperature that depends on the position has a mask.
    return None


def refuse_length(model: Transformer, length: int) -> str | None:
    """Reason why counts up to a length are not exact in the float type, or None."""
    info = jnp.finfo(model.dtype)
    if length <= 2 ** (info.nmant + 1):
        return None
    return (
        f"it needs counts that {info.dtype} holds exactly, which end at "
        f"{2 ** (info.nmant + 1)}, and the length is {length}; use float64"
    )


def _lump(request: InfluenceRequest) -> tuple[Places, int] | str:
    """Distinct position encodings and number of row classes; or the reason to refuse."""
    n = request.tokens.size
    if refusal := refuse_length(request.model, n):
        return refusal
    places = request.places
    if places is None:
        return (
            f"it needs equal rows, and the {n} positions have more than {MAX_CLASSES} "
            "different position encodings"
        )
    kinds = places.of * request.model.vocab_size + request.tokens
    classes = len(np.unique(np.delete(kinds, request.query)))
    if classes > MAX_CLASSES:
        return (
            f"it needs few classes of equal rows, and this input has {classes}, more "
            f"than {MAX_CLASSES}"
        )
    return places, classes


@dataclasses.dataclass(frozen=True)
class Lumped(Method):
    """Method "lumped": propagation of classes of equal rows, with their counts."""

    name = "lumped"

    def refuse(self, request: InfluenceRequest) -> str | None:
        """Reason to refuse a request (model, length, many rows or classes), or None."""
        if refusal := refuse_model(request.model) or one_row(request):
            return refusal
        found = _lump(request)
        return found if isinstance(found, str) else None

    def cost(self, request: InfluenceRequest) -> float:
        """Estimated cost in forward passes, from the number of classes."""
        found = _lump(request)
        assert not isinstance(found, str)
        # The replaced row and the query are classes of their own. Each tie order tells apart
        # where the row stands between the ends of k classes, and whether it is an end itself.
        k = found[1] + 2
        orders = sum(tie_orders(request.model))
        kinds = (found[1] + 1) * request.model.vocab_size * (2 * k) ** orders
        return 3 * min(request.position.size, kinds) * (k / request.tokens.size) ** 2

    def blocks(self, request: InfluenceRequest) -> Iterator[Block]:
        """Yields the changes of the target under all substitutions, in order."""
        model, n = request.model, request.tokens.size
        places = request.places
        assert places is not None
        classes = classify(request.tokens, places, request.query)
        configurations, whose = classes.configure(
            request.position, request.symbol, tie_orders(model)
        )
        runs = run_configurations(
            model,
            places.encodings,
            configurations,
            length=n,
            target=request.target_value,
            run=request.moved_run,
        )
        found, ties = zip(
            *((choose(x[:, None], request.chosen), met) for x, met in runs), strict=True
        )
        changes, seen = np.concatenate(found), merge_ties(ties)
        for start in range(0, request.position.size, BLOCK):
            # Substitutions of one configuration change alike.
            part = whose[start : start + BLOCK]
            yield Block(changes[part], seen)


LUMPED = Lumped()

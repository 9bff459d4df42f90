"""The certificate of a restriction, as plain JSON.

It lists, of every layer and every position that matters, the possible sets with their
witnesses and the bits that the output depends on: enough for someone who shares no code
with the search to check each exclusion, to tabulate every row and to see that the query's
output is the same for all completions. Positions and tokens count from 0.

Source: docs/certificates-of-restrictions.md, section 1.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from bounds.output import sha256
from bounds.restriction.analysis import Analysis, RowSets
from bounds.restriction.enclosed import Floats
from jax_models import Transformer, model_bytes

FORMAT = "attention-bounds restriction certificate 1"

T = TypeVar("T")


def certificate_of(
    model: Transformer, analysis: Analysis, output: Floats
) -> dict[str, Any]:
    """Returns the certificate of an analysis that found the output constant.

    Args:
        model: The transformer.
        analysis: Of a partial input.
        output: The query's final activation, as the model computes it [d].

    Returns:
        A JSON object; its pair and language are null, as nothing was asked of it.
    """
    partial = analysis.partial
    attentions = [layer.attention for layer in model.layers]
    return {
        "format": FORMAT,
        "n": partial.length,
        "L": len(model.layers),
        "H": _shared([attention.num_heads for attention in attentions]),
        "tie": _shared([_tie(attention.weighting) for attention in attentions]),
        "mask": _shared([attention.mask for attention in attentions]),
        "model_digest": sha256(model_bytes(model)),
        "symbols": list(partial.symbols),
        "rho": partial.tokens.tolist(),
        "query": analysis.query,
        "mode": "exact" if analysis.exact else "floating",
        "layers": [
            {str(position): _entry(sets) for position, sets in layer.items()}
            for layer in analysis.layers
        ],
        "output": output.tolist(),
        "pair": None,
        "language": None,
        "members": None,
        "free": len(partial.free),
        "log2_misclassified": None,
    }


def _entry(sets: RowSets) -> dict[str, Any]:
    return {
        "deps": list(sets.bits),
        "heads": [
            [
                {"poss": list(positions), "witness": witness}
                for positions, witness in head
            ]
            for head in sets.heads
        ],
    }


def _tie(weighting: Any) -> str:
    return {1: "L", -1: "R", 0: "avg"}[weighting.side]


def _shared(values: Sequence[T]) -> T | list[T]:
    """The value that all layers share, or the list of theirs."""
    return values[0] if len(set(values)) == 1 else list(values)

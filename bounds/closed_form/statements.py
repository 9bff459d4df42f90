"""The quantities the influence bounds speak about, and the hypotheses they share.

Two statements about the same thing must say so in the same words, so that a printed
claim can be held against a proved bound. Positions are j (the one that is read) and i
(the one whose symbol changes), y^(k) the activations after layer k.
"""

from bounds.interval import Interval, log_upper
from bounds.result import Bound, Sense

DIFFER = "the inputs differ at position i only, their embeddings there by at most D"
CONSTANTS = "the layer constants hold for both inputs: norms at most F_k, gains bounds"
UNMASKED = "softmax attention over all n positions, no mask"
MASKED = "softmax attention over the visible positions of each row"

UNMASKED_HYPOTHESES = (DIFFER, CONSTANTS, UNMASKED)


def corrected_bound(
    value: Interval,
    quantity: str,
    form: str,
    hypotheses: tuple[str, ...] = UNMASKED_HYPOTHESES,
) -> Bound:
    """An upper bound of the corrected Lemma 5, from an enclosure of its value.

    Args:
        value: What the quantity is at most.
        quantity: In the words of `others` and `own`.
        form: Which form of the lemma, for the source.
        hypotheses: What it rests on.
    """
    return Bound(
        log_value=log_upper(value),
        sense=Sense.UPPER,
        quantity=quantity,
        hypotheses=hypotheses,
        source=f"Hahn 2020, Lemma 5, corrected: {form}",
    )


def others(layer: int) -> str:
    """The change at a position j that is not i, after this many layers."""
    return f"|y_j^({layer}) - y'_j^({layer})|, j != i"


def own(layer: int) -> str:
    """The change at the position i itself, after this many layers."""
    return f"|y_i^({layer}) - y'_i^({layer})|"

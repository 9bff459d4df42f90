"""Theorem C: the corrected Lemma 5 as a recursion over layers, without a mask.

Let κ bound the change of every position but i and σ that of i; at the embeddings κ = 0
and σ = D. With B_h(q) the bound of `head_change` for a query that moves by q, a layer
gives

    κ' = skip κ + Σ_h gain_h B_h(κ),     σ' = skip σ + Σ_h gain_h B_h(σ),

and the statement holds for all n >= 2 and all pairs of inputs. Proof: induction; B
grows with the query's change, so κ <= σ persists. For fixed constants κ is O(1/n),
since its only source is ᾱ (σ - κ + 2F d_i) and ᾱ <= e^{2A}/n.

The linear recursion is proportional to D: it bounds the Lipschitz constant. The
saturating one also knows that logits, averages and outputs have a bounded range; it is
never larger.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from bounds.closed_form.domain import nonnegative, whole
from bounds.closed_form.head_change import change_bound
from bounds.closed_form.layer_constants import LayerConstants
from bounds.closed_form.statements import corrected_bound, others, own
from bounds.interval import Interval, interval, minimum
from bounds.result import Bound


@dataclasses.dataclass(frozen=True)
class LayerInfluence:
    """What is known of the changes after one layer.

    Attributes:
        others: Upper bound at every position but i.
        own: Upper bound at position i.
    """

    others: Bound
    own: Bound


def influence_recursion(
    layers: Sequence[LayerConstants],
    length: int,
    distance: float,
    *,
    saturating: bool = True,
) -> tuple[LayerInfluence, ...]:
    """Bound the influence of one symbol after each layer, attention without a mask.

    Args:
        layers: Constants of layers 1 … L, at the temperature of this length.
        length: n >= 2, every position counted (a query token too).
        distance: D, the largest distance of two embeddings that are exchanged.
        saturating: Whether to use that logits, averages and outputs have a bounded
            range. Without, the bounds are exactly proportional to D.

    Returns:
        Upper bounds after each layer; the last element speaks of the final activations.

    Raises:
        ValueError: n is below 2, D is negative, or there is no layer.

    Source:
        Hahn 2020, Lemma 5, corrected.
    """
    length = whole("length", length, 2)
    start = interval(nonnegative("distance", distance))
    if not layers:
        raise ValueError("no layers, expected the constants of at least one")
    form = "Theorem C, " + ("saturating" if saturating else "linear")
    return tuple(
        LayerInfluence(
            corrected_bound(kappa, others(k), form),
            corrected_bound(sigma, own(k), form),
        )
        for k, (kappa, sigma) in enumerate(
            _steps(layers, length, start, saturating), start=1
        )
    )


def _steps(
    layers: Sequence[LayerConstants],
    length: int,
    distance: Interval,
    saturating: bool,
) -> Iterator[tuple[Interval, Interval]]:
    kappa, sigma = interval(0), distance
    for layer in layers:
        kappa, sigma = (
            _output_change(layer, length, x, kappa, sigma, saturating)
            for x in (kappa, sigma)
        )
        yield kappa, sigma


def _output_change(
    layer: LayerConstants,
    length: int,
    here: Interval,
    kappa: Interval,
    sigma: Interval,
    saturating: bool,
) -> Interval:
    """The change of the output at a position whose input changes by `here`."""
    norm = interval(layer.norm)
    query, other, itself = (
        minimum(entering, 2 * norm) if saturating else entering
        for entering in (interval(layer.input_gain) * x for x in (here, kappa, sigma))
    )
    out = interval(layer.skip_gain) * here
    for head in layer.heads:
        change = change_bound(
            head.score, norm, length, query, other, itself, saturating
        )
        out += interval(head.gain) * change
    return minimum(out, interval(layer.output_cap)) if saturating else out

"""The four numbers of the closed forms, the same for every layer and head.

    A >= F_k max(query slope, key slope)   for every layer and head,
    L_f with |dy'| <= L_f (|dy| + Σ_h |da_h|),

H heads and L layers. A is then at least half the oscillation of every row of logits,
and F d_o <= A (q + κ), F d_i <= A (q + σ): all that the closed forms use. For a dot
product A = mu F² + c F; for additive scores A = F max(m1, m2), half of Hahn's 2 F
C_att.
"""

import dataclasses
from collections.abc import Sequence

from bounds.closed_form.domain import nonnegative, whole
from bounds.closed_form.layer_constants import LayerConstants
from bounds.interval import interval, maximum, upper


@dataclasses.dataclass(frozen=True)
class UniformConstants:
    """Constants shared by all layers.

    Attributes:
        half_oscillation: A, nats.
        output_lipschitz: L_f, per unit of change of the activation and of each average.
        num_heads: H, the largest number of heads of a layer.
        num_layers: L.

    Raises:
        ValueError: A number is out of its range.
    """

    half_oscillation: float
    output_lipschitz: float
    num_heads: int
    num_layers: int

    def __post_init__(self) -> None:
        for name in ("half_oscillation", "output_lipschitz"):
            object.__setattr__(self, name, nonnegative(name, getattr(self, name)))
        for name in ("num_heads", "num_layers"):
            object.__setattr__(self, name, whole(name, getattr(self, name), 1))


def uniform_constants(layers: Sequence[LayerConstants]) -> UniformConstants:
    """The least uniform constants that cover every layer.

    Args:
        layers: Constants of layers 1 … L.

    Returns:
        Maxima over the layers, rounded up.

    Raises:
        ValueError: There is no layer.

    Source:
        Hahn 2020, proof of Lemma 5 (A, C_att, L_fact), made explicit.
    """
    if not layers:
        raise ValueError("no layers, expected the constants of at least one")
    a = lipschitz = interval(0)
    for layer in layers:
        norm = interval(layer.norm)
        lipschitz = maximum(lipschitz, interval(layer.skip_gain))
        for head in layer.heads:
            slopes = head.score.query_slope(norm), head.score.key_slope(norm)
            a = maximum(a, norm * maximum(*slopes))
            # Averages are of the attention's input, which may change faster than y.
            gain = interval(head.gain) * interval(layer.input_gain)
            lipschitz = maximum(lipschitz, gain)
    return UniformConstants(
        upper(a), upper(lipschitz), max(len(x.heads) for x in layers), len(layers)
    )

"""Numbers of a layer's weights that the certificates use, each rounded up.

Value space: where head outputs are compared. It is the layer's own space (after the
output projection) for residual sums, and the head's space where heads are concatenated.
"""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bounds.lemma5.certificate.scores import score_rule
from bounds.lemma5.certificate.sections import SectionConstants, section_constants
from bounds.numbers.spectral import Enclosure, frobenius_upper, norm_upper
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.pytree import register
from jax_models.model.transformer import Transformer


@register
@dataclasses.dataclass(frozen=True)
class CertificateConstants:
    """Lipschitz constants of the parts of a layer."""

    query: Float[Array, "heads"]  # |W_Q|, before the score scale
    key: Float[Array, "heads"]  # |W_K|
    value: Float[Array, "heads"]  # of the map from the attention's input to value space
    score: Float[Array, "heads"]  # |w| of additive scores; 0 for dot products
    score_range: Float[
        Array, "heads"
    ]  # 2 |w|_1, no additive score row varies more; inf otherwise
    curvature: Float[
        Array, "heads"
    ]  # of additive scores in the argument of tanh; 0 otherwise
    sections: dict[str, SectionConstants]  # of what follows attention
    # For rounding, which sees the entries of a matrix and not what they cancel to.
    query_entries: Float[Array, "heads"]  # Frobenius norms
    key_entries: Float[Array, "heads"]
    value_entries: Float[Array, "heads"]
    output_entries: Float[
        Array, "heads"
    ]  # of the output projection; 1 where there is none


def layer_constants(layer: Layer) -> CertificateConstants:
    """Constants of a float64 layer."""
    attention = layer.attention
    h, concatenated = attention.num_heads, attention.output is None
    numbers = {
        "query": _norms(attention.query),
        "key": _norms(attention.key_by_head),
        "value": np.asarray([x.norm_upper() for x in value_maps(attention)]),
        **score_rule(attention.scoring).constants(h),
        "query_entries": _entries(attention.query),
        "key_entries": _entries(attention.key_by_head),
        "value_entries": _entries(attention.value_by_head),
        "output_entries": np.ones(h) if concatenated else _entries(_outputs(attention)),
    }
    arrays = {k: jnp.asarray(x, jnp.float64) for k, x in numbers.items()}
    return CertificateConstants(**arrays, sections=section_constants(layer))


def value_maps(attention: Attention) -> list[Enclosure]:
    """O_h V_h of each head, V_h alone where heads are concatenated."""
    values = [Enclosure(np.asarray(w, np.float64)) for w in attention.value_by_head]
    if attention.output is None:
        return values
    outputs = _outputs(attention)
    return [Enclosure(o) @ v for o, v in zip(outputs, values, strict=True)]


def _outputs(attention: Attention) -> Float[np.ndarray, "heads width d_v"]:
    """O_h of every head."""
    h, v = attention.num_heads, attention.value_width
    output = np.asarray(attention.output, np.float64).reshape(-1, h, v)
    return output.swapaxes(0, 1)


def _entries(matrices: Any) -> Float[np.ndarray, "heads"]:
    return np.asarray([frobenius_upper(np.asarray(m, np.float64)) for m in matrices])


def _norms(matrices: Float[Array, "heads d_k width"]) -> Float[np.ndarray, "heads"]:
    return np.asarray([norm_upper(np.asarray(m, np.float64)) for m in matrices])


def needs_positive_epsilon(model: Transformer) -> str | None:
    """Name of a layer norm with epsilon = 0, or None."""
    named = [("the final norm", model.final_norm)]
    for depth, layer in enumerate(model.layers):
        named.append((f"norm1 of layer {depth}", layer.norm1))
        named.append((f"norm2 of layer {depth}", layer.norm2))
    for name, norm in named:
        if norm is not None and norm.epsilon == 0:
            return name
    return None

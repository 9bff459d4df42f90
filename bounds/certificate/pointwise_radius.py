"""Pointwise parts of a layer: how far an error of the residual sum is carried.

The radius around a centre is multiplied by a local Lipschitz constant. Locally the map is
linear up to the neurons that may change side and the curvature of layer norms, so the
constant is the norm of the Jacobian at a base row plus what the Jacobian can vary on the
way: a neuron u of slope s_u at the base has a slope within `slope_strays` of s_u wherever
its input is within its spread of the centre, and a ReLU that cannot change side strays by
0. docs/certificates.md has the proofs. Arrays broadcast over leading axes [...].
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from bounds.certificate.activation_ball import slope_strays
from bounds.certificate.base_radius import RowRadius
from bounds.certificate.layer_constants import LayerConstants
from bounds.certificate.norm_gain import norm_gains
from bounds.certificate.order import least, times
from bounds.certificate.pointwise import (
    Moved,
    Rounding,
    RowNorms,
)
from bounds.influence.pointwise import RowBase
from jax_models.layer import Layer

HIGHEST = jax.lax.Precision.HIGHEST


def carry_radius(
    layer: Layer,
    constants: LayerConstants,
    base: RowBase,
    norms: RowNorms,
    carried: Moved,
    radius: Array,
    heads: Array,
    rounding: Rounding,
    known: RowRadius,
) -> Array:
    """Returns the radius [...] of the output rows around their centre.

    Args:
        layer: the layer.
        constants: its constants.
        base: base rows, broadcastable against [...].
        norms: their Jacobians' norms.
        carried: the centre's change.
        radius: of the residual stream y [...].
        heads: of each head in value space [h, ...].
        rounding: of the centre.
        known: radii of the base rows, broadcastable.
    """
    block, width = layer.feed_forward, layer.feed_forward.w2.shape[0]
    columns = jnp.sqrt((block.w2 * block.w2).sum(axis=0))
    sizes = jnp.sqrt((block.w1[:, :width] ** 2).sum(axis=-1))

    reads = jnp.sqrt((block.w1 * block.w1).sum(axis=-1))
    unknown = known.preactivation + reads * rounding.read[..., None]

    def flips(spread: Array) -> Array:
        strays = slope_strays(
            block.bend,
            base.preactivation,
            carried["preactivation"],
            spread + unknown,
        )
        return (strays * spread * columns).sum(axis=-1)

    if layer.combine == "concat":
        assert norms.heads is not None
        h = heads.shape[0]
        parts = block.w1[:, width:].reshape(-1, h, heads_width(layer))
        by_head = jnp.sqrt((parts * parts).sum(axis=-1))
        spread = sizes * radius[..., None] + jnp.einsum(
            "fh,h...->...f", by_head, heads, precision=HIGHEST
        )
        local = norms.block * radius + flips(spread)
        local += (jnp.moveaxis(norms.heads, -1, 0) * heads).sum(axis=0)
        anywhere = constants.block * radius
        anywhere += jnp.einsum("h,h...->...", constants.heads, heads, precision=HIGHEST)
        return least(local, anywhere) + rounding.output

    radius = radius + heads.sum(axis=0)
    if layer.layer_norm == "none":
        local = norms.block * radius + flips(sizes * radius[..., None])
        return least(local, times(constants.block, radius)) + rounding.output
    return _carry_through_norms(
        layer, constants, base, norms, carried, radius, rounding, known, flips, sizes
    )


def _carry_through_norms(
    layer: Layer,
    constants: LayerConstants,
    base: RowBase,
    norms: RowNorms,
    carried: Moved,
    radius: Array,
    rounding: Rounding,
    known: RowRadius,
    flips: Any,
    sizes: Array,
) -> Array:
    """The same for residual sums with layer norms, radius that of the sum."""
    assert layer.norm1 is not None and layer.norm2 is not None
    assert norms.whole is not None and norms.norm2 is not None
    pre = layer.layer_norm == "pre"
    inner = layer.norm2 if pre else layer.norm1
    assert known.summed is not None
    gain, bend = norm_gains(
        inner, base.rows["summed"], carried["summed"], radius, known.summed
    )
    root = math.sqrt(base.rows["summed"].shape[-1])
    assert rounding.entered is not None
    entered = least(times(gain, radius), 2 * inner.largest * root) + rounding.entered
    stray = flips(sizes * entered[..., None])
    through = least(norms.block * entered + stray, times(constants.block, entered))
    if pre:
        # I + J' N' = (I + J N) + J (N' - N) + (J' - J) N'.
        composed = (norms.whole + norms.block * bend) * radius + stray
        composed += norms.block * rounding.entered
        return least(radius + through, composed) + rounding.output
    assert norms.norm1 is not None and rounding.last is not None
    through = through + rounding.output
    assert known.left is not None
    gain, last_bend = norm_gains(
        layer.norm2,
        base.rows["left"],
        carried["left"],
        through,
        known.left,
    )
    # N2' B' N1' = N2 B N1 + N2 (B (N1' - N1) + (B' - B) N1') + (N2' - N2) B' N1'.
    composed = norms.block * (bend * radius + rounding.entered) + stray
    composed = norms.norm2 * (composed + rounding.output)
    composed += norms.whole * radius + last_bend * through
    bounded = least(times(gain, through), composed, 2 * layer.norm2.largest * root)
    return bounded + rounding.last


def heads_width(layer: Layer) -> int:
    """Returns d_v."""
    return layer.attention.value.shape[1]

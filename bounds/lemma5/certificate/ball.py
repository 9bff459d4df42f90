"""Rows after attention: radii carried from its output to the layer's output.

The radius around a centre is multiplied by a local Lipschitz constant. Locally the map is
linear up to the neurons that may change side and the curvature of norms, so the constant
is the norm of the Jacobian at a base row plus its variation on the way: a neuron u of
slope s_u at the base has a slope within `slope_strays` of s_u wherever its input is within
its spread of the centre, and a ReLU that cannot change side has a variation of 0.
docs/certificates.md has the proofs. Arrays broadcast over their leading axes.
"""

import dataclasses
import math

import jax.numpy as jnp
from jaxtyping import Array, Float

from bounds.lemma5.certificate.activation_ball import slope_strays
from bounds.lemma5.certificate.norm_gain import norm_gains
from bounds.lemma5.certificate.order import least, times
from bounds.lemma5.certificate.pointwise import Moved, Rounding, RowNorms
from bounds.lemma5.certificate.sections import (
    Section,
    SectionConstants,
    carried_on,
    leading,
    sections,
)
from jax_models.model.layer import Layer
from jax_models.model.rows import linear


@dataclasses.dataclass(frozen=True)
class BaseRows:
    """Base rows, broadcastable against the changed rows."""

    rows: dict[str, Array]
    norms: RowNorms  # of their Jacobians
    radius: dict[str, Array]  # how far they are from the true ones


def carry_radius(
    layer: Layer,
    constants: dict[str, SectionConstants],
    base: BaseRows,
    carried: Moved,
    rounding: Rounding,
    balls: dict[str, Array],
) -> Float[Array, "..."]:
    """Radius of the output rows around their centre.

    `balls` are the radii of the layer's input and of the attended rows (`entering`).
    """
    balls, strays, norms = dict(balls), {}, base.norms
    found = sections(layer)
    first = leading(found)
    for section in found[:first]:
        balls[section.name] = carried_on(constants[section.name].gains, balls)
    for section in found[first:]:
        name, local = section.name, norms.local[section.name]
        if section.norm is not None:
            (source,) = section.sources
            gain, bend = norm_gains(
                section.norm,
                base.rows[source],
                carried[source],
                balls[source],
                base.radius[source],
            )
            off = bend * balls[source]
            # Two outputs of a norm are no further apart, whatever enters it.
            root = math.sqrt(base.rows[source].shape[-1])
            ball = least(times(gain, balls[source]), 2 * section.norm.largest * root)
        else:
            off = _flips(section, constants[name], base, carried, rounding, balls)
            ball = least(
                _along(local, balls) + off, carried_on(constants[name].gains, balls)
            )
        # M' = N' B' ... differs from the base's M by its factors, one after the other.
        strays[name] = _along(local, strays) + off + rounding.corners[name]
        balls[name] = ball + rounding.corners[name]
    output = layer.writes.output
    if not norms.whole:
        return balls[output]
    return least(balls[output], _along(norms.whole, balls) + strays[output])


def _along(norms: dict[str, Array], balls: dict[str, Array]) -> Float[Array, "..."]:
    """Sum of norms of Jacobians times radii, of the corners that have one."""
    found = jnp.zeros(())
    for name, norm in norms.items():
        if name == "heads" and name in balls:
            found = found + (jnp.moveaxis(norm, -1, 0) * balls[name]).sum(axis=0)
        elif name in balls:
            found = found + norm * balls[name]
    return found


def _flips(
    section: Section,
    constants: SectionConstants,
    base: BaseRows,
    carried: Moved,
    rounding: Rounding,
    balls: dict[str, Array],
) -> Float[Array, "..."]:
    """Contribution of neurons that may change side, or whose slope varies."""
    step = section.activation
    if step is None:
        return jnp.zeros(())
    (row,) = step.inputs
    around = {x: balls[x] + off for x, off in rounding.read[section.name].items()}
    spread = carried_on(constants.reads, around) + base.radius[row]
    strays = slope_strays(step.operation, base.rows[row], carried[row], spread)
    # Source by source: no spread is held beside the one that the slopes were asked for.
    weights = {x: constants.leaves * reads.T for x, reads in constants.reads.items()}
    flips = {x: _over_neurons(strays, weight) for x, weight in weights.items()}
    return _along(flips, balls)


def _over_neurons(
    strays: Float[Array, "*rows d_ff"], weights: Float[Array, "*heads d_ff"]
) -> Float[Array, "..."]:
    """Sums over neurons of deviations times weights, those of a head at the end."""
    if weights.ndim == 1:
        return (strays * weights).sum(axis=-1)
    return linear(strays, weights)

"""The change of a softmax mean when every key moves, as a mergeable summary.

With old weights a_m (sum 1), score changes d_m, new weights b_m = a_m exp(d_m) / Z, Z = sum
a_m e^{d_m}, any constant c, and all values relative to the old top column's, so that mean =
sum a_m v_m is as small as the weight of all others,

    mean' - mean = [ sum_m (a_m e^{d_m} v'_m - a_m e^c v_m)
                     - mean sum_m a_m (e^{d_m} - e^c) ] / Z.

A term of the first sum is a e^d (v' - v) + a (e^d - e^c) v where |d - c| <= 1, and as it
stands otherwise: a column that comes to dominate leaves nothing of its old value behind. The
differences are taken by expm1 of d - c, never as a subtraction of exponentials, so a small
change keeps its digits; c, the weighted mean of the d_m seen so far, keeps a large common
shift (a new query) from cancelling, since then Z >= e^c by Jensen. Tiles choose their own c
and are re-centred when they are merged. All exponentials are taken relative to a reference
of at least every exponent present.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from jax_models.model.pytree import register
from jax_models.run.blocks import formed_once
from jax_models.weighting.base import MovedKeys, same_position
from jax_models.weighting.softmax_summary import SoftmaxSummary

HIGHEST = jax.lax.Precision.HIGHEST


@register
@dataclasses.dataclass(frozen=True)
class SoftmaxChange:
    """Sums over the moved keys seen so far; the last four are times e^-reference.

    Values v are relative to the top column's.

    Old weights are held relative to their own peak: those that underflow beside a
    dominant column are all that is left once it has gone.
    """

    # largest log old weight, -inf where nothing was seen
    peak: Float[Array, "heads #columns"]
    mass: Float[Array, "heads #columns"]  # sum a, times e^-peak
    centre: Float[Array, "heads columns"]  # c, the weighted mean of the score changes
    deviation: Float[Array, "heads #columns d_v"]  # sum a v, times e^-peak
    mean: Float[Array, "heads #columns d_v"]  # the old mean
    reference: Float[Array, "heads columns"]
    total: Float[Array, "heads columns"]  # sum a e^d
    gained: Float[Array, "heads columns"]  # sum a (e^d - e^c)
    shifted: Float[Array, "heads columns d_v"]  # sum of a e^d v' - a e^c v


def raised_scores(
    scores: Float[Array, "... keys"], count: Float[Array, "keys"] | None
) -> Float[Array, "... keys"]:
    """Returns scores + ln(count): m equal keys weigh as one with a score ln m higher."""
    return scores if count is None else scores + jnp.log(count)


def lift_softmax_change(summary: SoftmaxSummary, moved: MovedKeys) -> SoftmaxChange:
    """Summarises a tile of moved keys against the summaries of their rows."""
    top_score = jnp.where(summary.top_score == -jnp.inf, 0.0, summary.top_score)
    score = raised_scores(moved.score, moved.count)
    log_old = score - top_score[..., None] - summary.lse_above_top[..., None]
    log_old = jnp.where(moved.visible, log_old, -jnp.inf)
    peak = log_old.max(axis=-1)
    finite_peak = jnp.where(peak == -jnp.inf, 0.0, peak)[..., None]
    old = jnp.exp(log_old - finite_peak)
    change = jnp.where(moved.visible, moved.score_change, 0.0)
    mass = old.sum(axis=-1)
    weighted = _sum_products(old, change)
    centre = jnp.where(mass > 0, weighted / jnp.where(mass > 0, mass, 1), 0.0)
    relative = change - centre[..., None]
    log_new = log_old + relative
    largest = jnp.maximum(log_new.max(axis=-1), peak)
    # An empty tile contributes nothing at any reference; -inf would make NaN of 0 * inf.
    largest = jnp.where(largest == -jnp.inf, 0.0, largest)[..., None]
    scale = jnp.exp(finite_peak - largest)
    # Told by a number, of NaN too: a mask that hides nothing is a constant, and no wall.
    seen = (peak != -jnp.inf).any()
    new, difference = formed_once(
        seen, moved_weights, old, log_new - largest, relative, scale
    )

    top = same_position(moved.index, summary.top_index[..., None], score.dtype)
    far = (jnp.abs(relative) > 1) & ~top

    top_value = summary.top_value
    stayed = jnp.where(top, 0.0, jnp.where(far, -old * scale, difference))
    arriving = jnp.where(far, new, 0.0)
    shifted = moved.carry(jnp.where(far, 0.0, new)) + moved.spread(stayed, top_value)
    # A tile of which no key moves far, as most are, has nothing that arrives.
    arrived = jax.lax.cond(
        far.any(),
        lambda: moved.spread_new(arriving, top_value),
        lambda: jnp.zeros_like(shifted),
    )
    return SoftmaxChange(
        peak=peak,
        mass=mass,
        centre=centre,
        deviation=moved.spread(jnp.where(top, 0.0, old), top_value),
        mean=summary.above_top,
        reference=centre + largest[..., 0],
        total=new.sum(axis=-1),
        gained=difference.sum(axis=-1),
        shifted=shifted + arrived,
    )


def merge_softmax_change(first: SoftmaxChange, second: SoftmaxChange) -> SoftmaxChange:
    """Joins two change summaries, re-centred at their common weighted mean."""
    sides = (first, second)
    peak = jnp.maximum(first.peak, second.peak)
    shares = [jnp.where(s.mass > 0, jnp.exp(s.peak - peak), 0.0) for s in sides]
    masses = [share * s.mass for share, s in zip(shares, sides, strict=True)]
    mass = masses[0] + masses[1]
    weighted = masses[0] * first.centre + masses[1] * second.centre
    centre = jnp.where(mass > 0, weighted / jnp.where(mass > 0, mass, 1), 0.0)
    # A side that saw no weight has an arbitrary reference: it must not set the scale.
    references = [
        jnp.where((s.total > 0) | (s.mass > 0), s.reference, -jnp.inf) for s in sides
    ]
    reference = jnp.maximum(*references)
    reference = jnp.where(reference == -jnp.inf, 0.0, reference)
    scales = [jnp.exp(r - reference) for r in references]

    def scaled(one: Array, two: Array) -> Array:
        a, b = (s[..., None] if one.ndim > s.ndim else s for s in scales)
        return a * one + b * two

    shifted = scaled(first.shifted, second.shifted)
    gained = scaled(first.gained, second.gained)
    for side in sides:
        gap = side.centre - centre
        step = -jnp.sign(gap) * jnp.expm1(-jnp.abs(gap))
        # The peak goes into the exponent: alone, the exponential could overflow.
        log_scale = jnp.maximum(side.centre, centre) + side.peak - reference
        scale = jnp.where(side.mass > 0, jnp.exp(log_scale) * step, 0.0)
        shifted += scale[..., None] * side.deviation
        gained += scale * side.mass
    return SoftmaxChange(
        peak=peak,
        mass=mass,
        centre=centre,
        deviation=(
            shares[0][..., None] * first.deviation
            + shares[1][..., None] * second.deviation
        ),
        mean=second.mean,
        reference=reference,
        total=scaled(first.total, second.total),
        gained=gained,
        shifted=shifted,
    )


def read_softmax_change(change: SoftmaxChange) -> Float[Array, "heads columns d_v"]:
    """Returns mean' - mean; zero for a row that sees nothing."""
    total = jnp.where(change.total > 0, change.total, 1)
    moved = change.shifted - change.gained[..., None] * change.mean
    return moved / total[..., None]


def _sum_products(
    old: Float[Array, "heads #columns keys"], change: Float[Array, "heads columns keys"]
) -> Float[Array, "heads columns"]:
    """Sum of old times change over the keys; where all columns share, a matrix product."""
    if old.shape[1] == 1:
        product = jnp.matmul(change, old.swapaxes(1, 2), precision=HIGHEST)
        return product[..., 0]
    return (old * change).sum(axis=-1)


def moved_weights(
    # a e^-peak
    old: Float[Array, "heads #columns keys"],
    # log of a e^d times e^-reference
    log_new: Float[Array, "heads columns keys"],
    # d - c
    relative: Float[Array, "heads columns keys"],
    # e^(peak + c) times e^-reference
    scale: Float[Array, "heads columns 1"],
) -> tuple[Float[Array, "heads columns keys"], Float[Array, "heads columns keys"]]:
    """a e^d and a (e^d - e^c) of each key, times e^-reference."""
    new = jnp.exp(log_new)
    # a (e^x - 1) from whichever of the two exponentials is the larger; hidden keys have
    # weight 0 before and after.
    step = -jnp.sign(relative) * jnp.expm1(-jnp.abs(relative))
    return new, jnp.where(relative > 0, new, old * scale) * step

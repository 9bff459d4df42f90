"""Bounds F_k on the norms of activations, layer by layer.

F_0 is the largest norm of an embedding plus its position encoding, which must be
bounded over positions. An average of vectors is no longer than the longest; a Lipschitz
map g satisfies |g(z)| <= |g(0)| + ℓ|z|. This is what the printed 2 C_fact^L (|p| + |v|)
stands for; unlike it, biases count, and no factor is assumed to be at least one.
"""

from collections.abc import Sequence

from bounds.closed_form.domain import nonnegative
from bounds.interval import Interval, exp, interval, log, log_upper, maximum, upper
from bounds.result import Bound, Sense


def residual_norm(
    norm: float,
    *,
    attended_norm: float,
    omegas: Sequence[float],
    attention_offset: float,
    block_lipschitz: float,
    block_offset: float,
) -> Bound:
    """Bound the output of r = y + Σ_h O_h b_h + o, y' = g(r).

    F' = ℓ (F + F_u Σ_h ω_h + |o|) + |g(0)|.

    Args:
        norm: F, of the layer's input.
        attended_norm: F_u, of what the attention reads: F, or that of a LayerNorm
            before.
        omegas: ω_h, spectral norm of O_h V_h.
        attention_offset: |o|, of the output bias plus O times the value biases.
        block_lipschitz: ℓ of the feed-forward block g with its residual.
        block_offset: |g(0)| = |W2 act(b1) + b2|.

    Returns:
        An upper `Bound` on |y'|.

    Raises:
        ValueError: A number is negative or NaN.

    Source:
        Hahn 2020, proof of Lemma 5 (the constant F), made explicit.
    """
    through = _checked("attended_norm", attended_norm) * _total("omega", omegas)
    middle = _checked("norm", norm) + through
    middle += _checked("attention_offset", attention_offset)
    value = _checked("block_lipschitz", block_lipschitz) * middle
    return _bound(value + _checked("block_offset", block_offset))


def concat_norm(
    norm: float,
    *,
    skip_gain: float,
    head_lipschitz: Sequence[float],
    omegas: Sequence[float],
    offset: float,
) -> Bound:
    """Bound the output of y' = f(y, b_1, …, b_H), the form of Hahn 2020.

    F' = (ℓ_y + Σ_h ℓ_h ω_h) F + |f at zero activations|.

    Args:
        norm: F, of the layer's input.
        skip_gain: ℓ_y, Lipschitz constant of f in y.
        head_lipschitz: ℓ_h, Lipschitz constant of f in b_h.
        omegas: ω_h, spectral norm of the value matrix; 1 where values are activations.
        offset: |f| at y = 0 and b_h = the value bias: the offset of the layer.

    Returns:
        An upper `Bound` on |y'|.

    Raises:
        ValueError: A number is negative or NaN, or the counts differ.

    Source:
        Hahn 2020, proof of Lemma 5 (the constant F), made explicit.
    """
    gain = _checked("skip_gain", skip_gain)
    for ell, omega in zip(head_lipschitz, omegas, strict=True):
        gain += _checked("head_lipschitz", ell) * _checked("omega", omega)
    return _bound(gain * _checked("norm", norm) + _checked("offset", offset))


def growth_constant(embedding_norm: float, norms: Sequence[float]) -> float:
    """Compute the least C_fact >= 1 with F_k <= C_fact^k (|p| + |v|) for every layer.

    max(1, max_k (F_k/(|p| + |v|))^{1/k}).

    Args:
        embedding_norm: max_j |p_j| + max_σ |v_σ|.
        norms: F_1 … F_L, biases included.

    Returns:
        C_fact, rounded up.

    Raises:
        ValueError: A number is negative, or the embeddings vanish and a layer does not.

    Source:
        Hahn 2020, proof of Lemma 5 (the constant C_fact), read so that it is true.
    """
    start = _checked("embedding_norm", embedding_norm)
    growth = interval(1)
    for k, norm in enumerate(norms, start=1):
        if nonnegative("norm", norm) <= embedding_norm:
            continue
        if embedding_norm == 0:
            raise ValueError(
                f"embedding_norm is {embedding_norm} but layer {k} reaches {norm}: no "
                "growth constant covers biases where the embeddings vanish"
            )
        growth = maximum(growth, exp(log(interval(norm) / start) / k))
    return upper(growth)


def _checked(name: str, value: float) -> Interval:
    return interval(nonnegative(name, value))


def _total(name: str, values: Sequence[float]) -> Interval:
    return sum((_checked(name, x) for x in values), start=interval(0))


def _bound(value: Interval) -> Bound:
    return Bound(
        log_value=log_upper(value),
        sense=Sense.UPPER,
        quantity="norm of the activations after the layer",
        hypotheses=("norms and Lipschitz constants are upper bounds",),
        source="Hahn 2020, proof of Lemma 5, the constant F",
    )

"""Lemma 5 is not true of every row of masked attention.

Uniform causal averaging, values the activations, no skip. Row 2 gives symbol 1 the
weight 1/2 at every length, so no constant C makes C/n a bound. At the last row, n times
the influence of symbol 1 grows like (ln n)^{L-1}/(L-1)!: harmonic numbers.
"""

from bounds.audit.finding import Finding, real
from bounds.closed_form import (
    DotProduct,
    printed_tight,
    scaled_causal_average_influence,
)

LENGTHS = (64, 256, 1024, 4096)
DEPTHS = (1, 2, 3)


def findings() -> tuple[Finding, ...]:
    """The printed bound, taken at row 2 of a causal average, for growing n."""
    constants = printed_tight(
        scores=[DotProduct(0.0)], norm=1.0, output_lipschitz=1.0, num_heads=1
    )
    return tuple(
        Finding(
            step="lemma",
            printed="‖y_j^(k) − y'_j^(k)‖ ≤ H^k C^{2k} D/n",
            model=f"uniform causal averaging, i = 1, j = 2, D = 1, A = 0; n = {n}",
            left=real(1) / 2,
            right=real(constants.others(1, n, 1.0).value),
        )
        for n in LENGTHS
    )


def harmonic_rows() -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Per length, n times the influence of symbol 1 on row n for each depth."""
    return tuple(
        (n, tuple(scaled_causal_average_influence(n, depth) for depth in DEPTHS))
        for n in LENGTHS
    )

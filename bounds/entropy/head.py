"""From a distance of activations to a distance of log-odds: the read-out's part."""

from collections.abc import Sequence

import numpy as np

from bounds.interval import interval, maximum, sqrt, upper
from jax_models import InputError, Transformer
from jax_models.evaluate import require_readout


def log_odds_norm(model: Transformer, pairs: Sequence[tuple[int, int]]) -> float:
    """Bound Λ, how far log-odds move per unit of the activation that is read.

    |Δ ln(q_s/q_t)| = |(W_s - W_t) Δy| <= Λ |Δy|, Λ = max over the pairs of |W_s - W_t|.

    Args:
        model: A transformer with a read-out.
        pairs: Classes (s, t) whose log-odds matter.

    Returns:
        Λ in nats per unit, rounded up.

    Raises:
        InputError: There is no read-out, or no such class.

    Source:
        Hahn 2020, Theorem 6, corrected: from influence to log-odds.
    """
    weight = np.asarray(require_readout(model).weight, np.float64)
    most = max(max(pair) for pair in pairs)
    if most >= len(weight):
        raise InputError(
            f"the read-out has {len(weight)} classes; class {most} is needed"
        )
    norms = [
        sqrt(
            sum(
                (interval(float(a)) - interval(float(b))) ** 2
                for a, b in zip(weight[s], weight[t], strict=True)
            )
        )
        for s, t in pairs
    ]
    return upper(maximum(*norms))

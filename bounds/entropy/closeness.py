"""Largest change ε of the log-odds within a pair of prefixes, by three methods.

* "closed_form": Λ times the corrected Lemma 5, one ε for all inputs of the length.
* "certificate": Λ times the certificate of each pair's exchange.
* "exact": the change of the log-odds themselves, from two forward passes a pair, with
  the radius of their rounding added.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int

from bounds.entropy.predictions import Predictions, model_tokens
from bounds.entropy.theorems import OUTSIDE, Pairs
from bounds.lemma5.certificate import certify_influence
from bounds.lemma5.constants import closed_form_bounds
from bounds.numbers.interval import exp, interval, log, maximum, sqrt, upper
from jax_models import InputError, Transformer
from jax_models.languages import Source
from jax_models.run.evaluate import linear_readout

CLOSENESS = ("exact", "certificate", "closed_form")


def log_odds_norm(model: Transformer, pairs: Sequence[tuple[int, int]]) -> float:
    """Bound Λ, the largest move of log-odds per unit of the activation that is read.

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
    weight = np.asarray(linear_readout(model).weight, np.float64)
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


@dataclasses.dataclass(frozen=True)
class UniformCloseness:
    """ε for all inputs of a length.

    Attributes:
        epsilon: Nats; infinite beyond float range.
        log10: Its decimal logarithm, which is finite where the closed form is.
    """

    epsilon: float
    log10: float


def closed_form_closeness(
    model: Transformer, num_tokens: int, class_pairs: Sequence[tuple[int, int]]
) -> UniformCloseness:
    """Bound ε for all inputs of a length: Λ times the corrected Lemma 5, rounded up."""
    norm = log_odds_norm(model, class_pairs)
    change = closed_form_bounds(model, num_tokens).corrected.others
    if norm == 0 or change.log_value == -math.inf:
        return UniformCloseness(0.0, -math.inf)
    total = log(interval(norm)) + interval(change.log_value)
    return UniformCloseness(upper(exp(total)), upper(total / log(interval(10))))


def exact_closeness(
    own: Predictions, other: Predictions, class_pairs: Sequence[tuple[int, int]]
) -> Float[np.ndarray, "inputs"]:
    """Returns max |(z_s - z_t) - (z'_s - z'_t)| of each pair, rounding included."""
    s, t = np.array(class_pairs).T
    moved = own.logits - other.logits
    return np.abs(moved[:, s] - moved[:, t]).max(axis=1) + own.radius + other.radius


def certified_closeness(
    model: Transformer,
    source: Source,
    strings: Int[np.ndarray, "inputs tokens"],
    pairs: Pairs,
    reading: str,
    class_pairs: Sequence[tuple[int, int]],
) -> Float[np.ndarray, "inputs"]:
    """Returns certified ε of each prefix's pair, 0 outside the pairs."""
    norm = interval(log_odds_norm(model, class_pairs))
    found, known = np.zeros(len(strings)), {}
    for row in np.flatnonzero(pairs.kinds != OUTSIDE):
        # Both members of a pair share one certificate, that of the smaller one.
        members = sorted((strings[row].tolist(), pairs.partners[row].tolist()))
        at = int(pairs.positions[row])
        key = tuple(members[0]), at
        if key not in known:
            tokens = model_tokens(source, np.array(members[:1], np.int32), reading)[0]
            certificate = certify_influence(
                model, tokens, positions=[at], symbols=[members[1][at]]
            )
            known[key] = upper(norm * interval(certificate.max_upper))
        found[row] = known[key]
    return found

"""Theorem 6 for a given model: its cross-entropy on a source, and the floor beneath it.

A source is a law of random words, a floor a lower bound on cross-entropy.
`measure_entropy` evaluates both at one length: the model by enumeration or Monte Carlo,
the floor from how far the model's log-odds can move within the pairs of prefixes of
Theorems F and G, which is bounded for all inputs, certified for each, or computed
exactly. Lengths count symbols; an end token that is read (R2) comes on top.
"""

from bounds.entropy.measure import (
    CLOSENESS,
    Floor,
    ModelEntropy,
    entropy_levels,
    log_odds_norm,
    measure_entropy,
)
from bounds.entropy.predictions import (
    Population,
    Predictions,
    check_predictor,
    enumerate_prefixes,
    predict,
    sample_prefixes,
)
from bounds.entropy.theorems import (
    DyckTheorem,
    FloorTheorem,
    Pairs,
    ParityTheorem,
    floor_theorem,
)
from bounds.figures.curves import entropy_figure

__all__ = [
    "CLOSENESS",
    "DyckTheorem",
    "Floor",
    "FloorTheorem",
    "ModelEntropy",
    "Pairs",
    "ParityTheorem",
    "Population",
    "Predictions",
    "check_predictor",
    "entropy_figure",
    "entropy_levels",
    "enumerate_prefixes",
    "floor_theorem",
    "log_odds_norm",
    "measure_entropy",
    "predict",
    "sample_prefixes",
]

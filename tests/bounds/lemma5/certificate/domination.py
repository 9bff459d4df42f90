"""Certificates and closed forms of one model and input, beside the exact influence."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bounds.influence import Influence, compute_influence
from bounds.lemma5.certificate import Certificate, certify_influence
from bounds.lemma5.certificate.references import CertificateMethod
from bounds.lemma5.constants import closed_form_bounds
from tests.bounds.lemma5.constants.domination import Measured
from tests.bounds.lemma5.constants.drawn import VOCABULARY, Drawn

# Beyond it, the exact influence of one and two layers alone, by another method.
EXHAUSTIVE = 33
# From it on, positions are spaced evenly, the first and the last among them.
LONGEST = 4096


@dataclasses.dataclass(frozen=True)
class Compared:
    """The same substitutions by every method.

    A ratio is a bound over the lower end of the enclosure that the exact method gives:
    the true influence is at least that, so a ratio below 1 would refute the bound.
    """

    exact: Influence
    certificates: dict[str, Certificate]
    chain: Measured

    @property
    def centred(self) -> Certificate:
        return self.certificates["centred"]

    def ratio(self, found: Certificate) -> float:
        """The smallest over all substitutions whose influence is told from zero."""
        told = self.exact.lower > 0
        ratios = found.upper[told] / self.exact.lower[told]
        return float(ratios.min(initial=math.inf))

    def assert_dominated(self) -> None:
        substituted = ~np.isnan(self.exact.lower)
        rows = substituted.any(axis=1)
        for found in self.certificates.values():
            assert (np.isnan(found.upper) == ~substituted).all()
            assert (found.upper >= self.exact.lower)[substituted].all(), (
                found.method,
                self.ratio(found),
            )
            np.testing.assert_array_equal(
                found.position_upper[rows], np.nanmax(found.upper[rows], axis=1)
            )
        self.chain.assert_chain()


def compare(
    drawn: Drawn,
    length: int,
    seed: int,
    query: int,
    methods: Sequence[CertificateMethod] = ("centred", "base"),
) -> Compared:
    """The substitutions of one random input, the query's own token included."""
    model, tokens = (
        drawn.model,
        np.random.default_rng(seed).integers(0, VOCABULARY, length),
    )
    question: dict[str, Any] = {
        "query": query,
        "target": drawn.target,
        "include_query": True,
        "positions": None
        if length < LONGEST
        else np.linspace(0, length - 1, 64, dtype=int),
    }
    method = "exhaustive" if length <= EXHAUSTIVE else "incremental"
    exact = compute_influence(model, tokens, method=method, **question)
    assert exact.exact
    certificates: dict[str, Certificate] = {
        name: certify_influence(model, tokens, method=name, **question)
        for name in methods
    }
    forms = closed_form_bounds(model, length, query=query, target=drawn.target)
    own = exact.position_lower[query]
    others = np.nanmax(np.delete(exact.position_lower, query % length))
    chain = Measured(forms, float(others), float(own), 0.0)
    return Compared(exact, certificates, chain)


class Smallest:
    """The smallest ratios over many models, for what a test says of them."""

    def __init__(self, name: str):
        self.name, self.models = name, 0
        self.of: dict[str, float] = {}

    def take(self, found: Compared) -> None:
        self.models += 1
        forms = found.chain.forms
        ratios = {name: found.ratio(x) for name, x in found.certificates.items()}
        ratios["corrected"] = min(found.chain.slack, found.chain.own_slack)
        for name in ("c1", "c2"):
            form = getattr(forms, name)
            if form is not None and found.chain.others > 0:
                decades = form.others.log10_value - math.log10(found.chain.others)
                ratios[name] = 10 ** min(decades, 300.0)
        for name, ratio in ratios.items():
            self.of[name] = min(ratio, self.of.get(name, math.inf))

    def __str__(self) -> str:
        slacks = ", ".join(f"{name} {r - 1:.3g}" for name, r in self.of.items())
        return f"{self.name}: {self.models} models, smallest slack: {slacks}"

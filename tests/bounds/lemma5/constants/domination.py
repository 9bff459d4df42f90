"""Exact influence beside every closed form, for one model and input.

The chain that must hold, for what is read and for every substitution:

    exact <= corrected <= linear <= C1 and C2 (no mask), linear <= causal (causal mask).
"""

import dataclasses
import math

import numpy as np

from benchmarks import reference
from bounds.lemma5.constants import ClosedForms, closed_form_bounds
from tests.bounds.lemma5.constants.drawn import Drawn

# Two float recursions over n rows: each is certified, their order holds up to rounding.
ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class Measured:
    """Exact values, infinite slack where nothing changed."""

    forms: ClosedForms
    others: float
    own: float
    margin: float

    @property
    def slack(self) -> float:
        """The corrected bound over the exact influence of the worst i != j."""
        return self._ratio(self.forms.corrected.others.log_value, self.others)

    @property
    def own_slack(self) -> float:
        """The same at i."""
        return self._ratio(self.forms.corrected.own.log_value, self.own)

    def _ratio(self, log_bound: float, exact: float) -> float:
        # What the margin could hide says nothing about the bound.
        if exact <= 1e3 * self.margin:
            return math.inf
        return math.exp(min(log_bound - math.log(exact), 700.0))

    def assert_chain(self) -> None:
        forms = self.forms
        assert self.others <= forms.corrected.others.value + self.margin
        assert self.own <= forms.corrected.own.value + self.margin
        chain = [(forms.corrected, forms.linear)]
        for weaker in (forms.c1, forms.c2, forms.causal):
            if weaker is not None:
                chain.append((forms.linear, weaker))
        for smaller, larger in chain:
            for name in ("others", "own"):
                low = getattr(smaller, name).log_value
                assert low <= getattr(larger, name).log_value + ROUNDING
        assert (forms.c1 is None) == (forms.c2 is None) == forms.constants.is_masked


def measure(drawn: Drawn, length: int, seed: int, query: int = -1) -> Measured:
    """Run every substitution of one random input through the oracle."""
    tokens = np.random.default_rng(seed).integers(
        0, len(drawn.tensors["embedding"]), length
    )
    changes = reference.influence(
        drawn.config, drawn.tensors, tokens, query, drawn.target, include_query=True
    )
    read = reference.logits if drawn.target == "logits" else reference.forward
    size = np.linalg.norm(read(drawn.config, drawn.tensors, tokens)[query])
    inside = reference.forward(drawn.config, drawn.tensors, tokens)[query]
    own = np.nanmax(changes[query], initial=0.0)
    others = np.nanmax(np.delete(changes, query % length, axis=0), initial=0.0)
    forms = closed_form_bounds(drawn.model, length, query=query, target=drawn.target)
    size = max(float(size), float(np.linalg.norm(inside)))
    return Measured(forms, float(others), float(own), 200 * np.finfo(float).eps * size)

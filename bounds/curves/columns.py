"""Bounds, claims and an estimate that a curve shows with its exact influences.

A curve is a table with one row per input or length n: the exact influence (the largest
change of an output by replacing one symbol), and columns to compare with it. Each kind
of bound is one row of `CURVE_BOUNDS`: its computation, and the name, heading and look
of each of its columns. Where a kind does not apply to a model (hard attention has no
Lipschitz constant), its columns are None and `REASON` has the reason. A claim is a
printed inequality without a valid proof.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from bounds.all_inputs import exact_supremum, search_inputs
from bounds.curves.inputs import check_changeable
from bounds.curves.measurement import Question
from bounds.lemma5.certificate import certify_influence
from bounds.lemma5.constants import closed_form_bounds
from bounds.numbers.bound import Bound, Claim
from jax_models.errors import InputError
from jax_models.model.reweight import at_length
from jax_models.model.transformer import Transformer

# Beyond two layers a certificate costs a forward pass per substitution.
LONGEST_DEEP_CERTIFICATE = 512
# Rounds of the one search that the estimate is: each is some 256 passes.
ROUNDS = 3
REASON = "reason"
# Decimal logarithm of the n at which the bound on an attention weight is 1/2.
HALF_WEIGHT = "log10_half_weight"
HARD = (
    "a hard weighting jumps, so it has no Lipschitz constant, and its exact influence "
    "stands alone"
)


Tokens = Int[np.ndarray, "tokens"]


@dataclasses.dataclass(frozen=True)
class CurveColumn:
    """One column of numbers to compare with the exact influence."""

    # In rows and files; then the heading in a printed table.
    name: str
    heading: str
    # None for a column that is not drawn. `look` are keywords of Matplotlib's `plot`.
    legend: str | None
    look: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    in_decades: bool = False  # whether the numbers are decimal logarithms

    def decades(self, value: float | None) -> float | None:
        """Decimal logarithm of a value of the column; None for None or 0."""
        if value is None or self.in_decades:
            return value
        return math.log10(value) if value > 0 else None


@dataclasses.dataclass(frozen=True)
class CurveBound:
    """One kind of bound, claim or estimate to compare with the exact influence."""

    name: str  # by which options choose it
    # Description in a printed table, after "for that input" or "over all inputs of the
    # length".
    meaning: str
    columns: tuple[CurveColumn, ...]
    # Whether it depends on the input, or on its length alone; `compute` then gets any input
    # of that length. It gives the columns by name.
    per_input: bool
    compute: Callable[[Transformer, Tokens, Question, int], Mapping[str, Any]]
    of_hard: bool = False  # whether it also exists for hard weightings
    # Whether it follows from the weights and n alone, without a pass, and so exists far
    # beyond the lengths measured.
    of_weights: bool = False

    @property
    def missing(self) -> dict[str, None]:
        """Each column's name with None, for a bound that does not apply."""
        return dict.fromkeys(column.name for column in self.columns)

    def measure(
        self, model: Transformer, tokens: Tokens, question: Question, seed: int
    ) -> dict[str, Any]:
        """Computed columns by name; `REASON` has None, or why all columns are None."""
        if model.is_hard and not self.of_hard:
            return {**self.missing, REASON: HARD}
        try:
            found = self.compute(at_length(model, len(tokens)), tokens, question, seed)
        except InputError as error:
            return {**self.missing, REASON: str(error)}
        return {**found, REASON: None}


def _certified(
    model: Transformer, tokens: Tokens, question: Question, seed: int
) -> dict[str, Any]:
    if len(model.layers) > 2 and len(tokens) > LONGEST_DEEP_CERTIFICATE:
        raise InputError(
            f"{len(model.layers)} layers at n = {len(tokens)}: certificates beyond two "
            "layers cost a forward pass per substitution, so a curve has them up to "
            f"n = {LONGEST_DEEP_CERTIFICATE}; certify_influence takes chosen positions"
        )
    certificate = certify_influence(model, tokens, **question.watched)
    if not math.isfinite(certificate.max_upper):
        raise InputError("nothing is certified: a bound is beyond float range")
    return {"certified": certificate.max_upper}


def _closed_forms(
    model: Transformer, tokens: Tokens, question: Question, seed: int
) -> dict[str, Any]:
    forms = closed_form_bounds(model, len(tokens), **question.watched)
    printed = None if forms.printed is None else forms.printed.others
    return {
        "log10_corrected": _log10(forms.corrected.others),
        "log10_printed": _log10(printed),
        HALF_WEIGHT: _finite(forms.constants.log10_half_weight(forms.layer)),
    }


def _log10(statement: Bound | Claim | None) -> float | None:
    """Decimal logarithm of a bound or claim; None without one or if not finite."""
    return None if statement is None else _finite(statement.log10_value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _estimate(
    model: Transformer, tokens: Tokens, question: Question, seed: int
) -> dict[str, Any]:
    check_changeable(len(tokens))
    asked = {**question.watched, "ties": question.ties, "seed": seed}
    found = search_inputs(model, len(tokens), restarts=1, rounds=ROUNDS, **asked)
    return {"estimate": found.max_lower}


def _supremum(
    model: Transformer, tokens: Tokens, question: Question, seed: int
) -> dict[str, Any]:
    asked = {**question.watched, "ties": question.ties}
    return {"supremum": exact_supremum(model, len(tokens), **asked).max}


# Looks of marks without a line.
CROSS, STAR = ({"linestyle": "none", "marker": marker} for marker in "x*")
RING: Mapping[str, Any] = {
    **{"linestyle": "none", "marker": "o", "markersize": 11},
    **{"markerfacecolor": "none", "markeredgewidth": 0.8},
}
CURVE_BOUNDS: Mapping[str, CurveBound] = {
    kind.name: kind
    for kind in (
        CurveBound(
            "certified",
            "certified",
            (
                # An upper bound for one input.
                CurveColumn("certified", "certified", "certified, these inputs", RING),
            ),
            True,
            _certified,
        ),
        CurveBound(
            # The corrected recursion bounds all inputs of a length; the printed constant is a
            # claim of a paper.
            "closed_forms",
            "decimal logarithms of the constants of Lemma 5",
            (
                CurveColumn(
                    "log10_corrected",
                    "corrected, log10",
                    "corrected Lemma 5, all inputs",
                    {"linestyle": "--"},
                    in_decades=True,
                ),
                CurveColumn(
                    "log10_printed",
                    "printed, log10",
                    "Lemma 5 as printed",
                    {"linestyle": ":"},
                    in_decades=True,
                ),
                CurveColumn(HALF_WEIGHT, "n_half, log10", None, in_decades=True),
            ),
            False,
            _closed_forms,
            of_weights=True,
        ),
        CurveBound(
            "estimate",
            # Neither a bound for all inputs nor their supremum.
            "the largest that a search met",
            (CurveColumn("estimate", "estimate", "estimated, worst input met", CROSS),),
            False,
            _estimate,
        ),
        CurveBound(
            "supremum",
            # Bounds for all inputs are at least this.
            "the exact supremum",
            (CurveColumn("supremum", "supremum", "exact, worst input", STAR),),
            False,
            _supremum,
            of_hard=True,
        ),
    )
}
"""The kinds by name, in the order of a curve's columns."""


def bound_columns() -> list[str]:
    """Names of all columns of `CURVE_BOUNDS`, in order."""
    return [c.name for kind in CURVE_BOUNDS.values() for c in kind.columns]


def shown_bounds() -> list[CurveBound]:
    """Kinds of bounds: first per input, then of hard models too, then others."""
    return sorted(
        CURVE_BOUNDS.values(), key=lambda kind: (not kind.per_input, not kind.of_hard)
    )

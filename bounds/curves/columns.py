"""What stands beside the exact influences of a curve: bounds, claims, an estimate.

Each kind is one row of `CURVE_BOUNDS`, which says all that is known of it: how it is
computed, and of each of its columns the name, the heading in print and the look in a
figure. They are different words and stay apart: the certificate is an upper bound for one
input, the corrected recursion one for all inputs, the printed constant a claim of a paper,
the estimate is neither, and the supremum, where it can be had, is what those for all inputs
bound. Where a kind does not apply to a model (hard attention has no Lipschitz constant), its
columns are None and `REASON` says why.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

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
# Of the n at which the bound on an attention weight is 1/2, the decimal logarithm.
HALF_WEIGHT = "log10_half_weight"
HARD = (
    "a hard weighting jumps, so it has no Lipschitz constant, and its exact influence "
    "stands alone"
)


@dataclasses.dataclass(frozen=True)
class CurveColumn:
    """One column of numbers beside the exact influence.

    Attributes:
        name: In rows and files.
        heading: In a printed table.
        legend: In a figure; None where it is not drawn.
        look: Of its line there, as Matplotlib's `plot` takes it.
        in_decades: Whether the numbers are decimal logarithms.
    """

    name: str
    heading: str
    legend: str | None
    look: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    in_decades: bool = False

    def decades(self, value: float | None) -> float | None:
        """Returns the decimal logarithm of a number of the column, None where it has none."""
        if value is None or self.in_decades:
            return value
        return math.log10(value) if value > 0 else None


@dataclasses.dataclass(frozen=True)
class CurveBound:
    """One kind of number beside the exact influence.

    Attributes:
        name: What it is asked for by.
        meaning: What a printed table says that it is, after "for that input" or "over all
            inputs of the length".
        columns: Its columns of a curve.
        per_input: Whether it depends on the input, or on its length alone.
        compute: Its columns by name, from the model, the tokens (of any input where
            `per_input` is false), the question and a seed.
        of_hard: Whether hard weightings have it too.
        of_weights: Whether it is read off the weights and n alone, without a pass, so that
            it can be had far beyond the lengths that are measured.
    """

    name: str
    meaning: str
    columns: tuple[CurveColumn, ...]
    per_input: bool
    compute: Callable[[Transformer, np.ndarray, Question, int], Mapping[str, Any]]
    of_hard: bool = False
    of_weights: bool = False

    @property
    def missing(self) -> dict[str, None]:
        """Its columns where there is nothing in them."""
        return dict.fromkeys(column.name for column in self.columns)

    def measure(
        self, model: Transformer, tokens: np.ndarray, question: Question, seed: int
    ) -> dict[str, Any]:
        """Returns the columns, or None in each and the reason.

        Args:
            model: The model.
            tokens: The input [n].
            question: What the exact influence is asked for.
            seed: Of the search.

        Returns:
            A value or None per column, and under `REASON` why there is none.
        """
        if model.is_hard and not self.of_hard:
            return {**self.missing, REASON: HARD}
        try:
            found = self.compute(at_length(model, len(tokens)), tokens, question, seed)
        except InputError as error:
            return {**self.missing, REASON: str(error)}
        return {**found, REASON: None}


def _certified(
    model: Transformer, tokens: np.ndarray, question: Question, seed: int
) -> dict[str, Any]:
    if len(model.layers) > 2 and len(tokens) > LONGEST_DEEP_CERTIFICATE:
        raise InputError(
            f"{len(model.layers)} layers at n = {len(tokens)}: certificates beyond two "
            "layers cost a forward pass per substitution, so a curve has them up to "
            f"n = {LONGEST_DEEP_CERTIFICATE}; certify_influence takes chosen positions"
        )
    certificate = certify_influence(
        model, tokens, query=question.query, target=question.target
    )
    if not math.isfinite(certificate.max_upper):
        raise InputError("nothing is certified: a bound is beyond float range")
    return {"certified": certificate.max_upper}


def _closed_forms(
    model: Transformer, tokens: np.ndarray, question: Question, seed: int
) -> dict[str, Any]:
    forms = closed_form_bounds(
        model, len(tokens), query=question.query, target=question.target
    )
    printed = None if forms.printed is None else forms.printed.others
    return {
        "log10_corrected": _log10(forms.corrected.others),
        "log10_printed": _log10(printed),
        HALF_WEIGHT: _finite(forms.constants.log10_half_weight(forms.layer)),
    }


def _log10(statement: Bound | Claim | None) -> float | None:
    """Returns the decimal logarithm; None where it is not finite."""
    return None if statement is None else _finite(statement.log10_value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _estimate(
    model: Transformer, tokens: np.ndarray, question: Question, seed: int
) -> dict[str, Any]:
    check_changeable(len(tokens))
    found = search_inputs(
        model,
        len(tokens),
        query=question.query,
        target=question.target,
        restarts=1,
        rounds=ROUNDS,
        ties=question.ties,
        seed=seed,
    )
    return {"estimate": found.max_lower}


def _supremum(
    model: Transformer, tokens: np.ndarray, question: Question, seed: int
) -> dict[str, Any]:
    best = exact_supremum(
        model,
        len(tokens),
        query=question.query,
        target=question.target,
        ties=question.ties,
    )
    return {"supremum": best.max}


CURVE_BOUNDS: Mapping[str, CurveBound] = {
    kind.name: kind
    for kind in (
        CurveBound(
            "certified",
            "certified",
            (
                CurveColumn(
                    "certified",
                    "certified",
                    "certified, these inputs",
                    {
                        **{"linestyle": "none", "marker": "o", "markersize": 11},
                        **{"markerfacecolor": "none", "markeredgewidth": 0.8},
                    },
                ),
            ),
            True,
            _certified,
        ),
        CurveBound(
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
            "the largest that a search met",
            (
                CurveColumn(
                    "estimate",
                    "estimate",
                    "estimated, worst input met",
                    {"linestyle": "none", "marker": "x"},
                ),
            ),
            False,
            _estimate,
        ),
        CurveBound(
            "supremum",
            "the exact supremum",
            (
                CurveColumn(
                    "supremum",
                    "supremum",
                    "exact, worst input",
                    {"linestyle": "none", "marker": "*"},
                ),
            ),
            False,
            _supremum,
            of_hard=True,
        ),
    )
}
"""The kinds by name, in the order of a curve's columns.

`certified` bounds the influence on this input; `log10_corrected` and `log10_printed` are
decimal logarithms for all inputs of the length; `estimate` is the largest influence that
the estimator's search over inputs met, an estimate of their supremum from below;
`supremum` is that supremum, exactly, for models without masks whose positions are few.
"""


def bound_columns() -> list[str]:
    """Returns the names of all columns beside the exact influence, in order."""
    return [c.name for kind in CURVE_BOUNDS.values() for c in kind.columns]


def shown_bounds() -> list[CurveBound]:
    """Returns the kinds as tables and figures show them.

    What is of one input stands first, then what every model may have, then the others.
    """
    return sorted(
        CURVE_BOUNDS.values(), key=lambda kind: (not kind.per_input, not kind.of_hard)
    )

"""Maps of the dependence of positions on one another, by a language model."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, get_args

from bounds.influence import LogOdds
from bounds.influence.answer import of_each_input
from bounds.influence.scan import Frobenius, Scan
from bounds.recipes.question import (
    Question,
    Unit,
    check_options,
    letters_of,
    require_language_model,
    residues_of,
)
from jax_models import Transformer
from jax_models.arguments import choose_name

# Reduction of a categorical Jacobian: the tensor is symmetrised.
PUBLISHED = Frobenius(symmetrize="tensor")


@of_each_input
def dependency_map(
    model: Transformer,
    tokens: Any,
    *,
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    epsilon: float = 1e-10,
    unit: Unit = "bits",
    **options: Any,
) -> Scan:
    """Largest change of a position's log-odds by a substitution at another.

        max over s, t of |log odds_j(t | x with x_i := s) - log odds_j(t | x)|

    for positions i and j, 0 for i = j. The odds are q / (1 - q), q the probabilities of
    the symbols among themselves, epsilon added to each and normalised again.

    Args:
        model: a language model.
        tokens: integers in [0, V) [n]; or a list of such inputs.
        symbols: both s and t; by default all that the model substitutes.
        positions: both i and j; by default all but special symbols.
        epsilon: added to each probability; 1e-10 as published.
        unit: "bits" (published) or "nats".
        options: method, ties, rounding, dtype and run, as in `scan`.

    Returns:
        A `Scan` (position, row); of a list a list of them.

    Source:
        Tomaz da Silva et al., Nucleotide dependency analysis of DNA language models
        reveals genomic functional elements, 2024.
    """
    check_options("dependency_map", options)
    require_language_model(model)
    choose_name("unit", unit, get_args(Unit))
    letters = letters_of(model, symbols)
    at = residues_of(model, tokens, positions)
    question = dependency_question(letters, at, epsilon)
    found = question.scan(model, tokens, positions=at, **options)
    return found if unit == "bits" else in_nats(found)


@of_each_input
def categorical_jacobian(
    model: Transformer,
    tokens: Any,
    *,
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    reduce: Frobenius = PUBLISHED,
    **options: Any,
) -> Scan:
    """Norms of the categorical Jacobian, J[i, s, j, t], centred and symmetrised.

        J[i, s, j, t] = logit_j(t | x with x_i := s) - logit_j(t | x)

    less its means over each of the four axes in turn; then sqrt(sum over s, t of J^2), 0
    for i = j, less the average product over rows and columns.

    Args:
        model: a language model.
        tokens: integers in [0, V) [n]; or a list of such inputs.
        symbols: both s and t; by default all that the model substitutes.
        positions: both i and j; by default all but special symbols.
        reduce: centring and symmetrisation of the tensor, and whether the average product
            is subtracted; as published by default.
        options: method, ties, rounding, dtype and run, as in `scan`.

    Returns:
        A `Scan` (position, row); of a list a list of them.

    Source:
        Zhang et al., Protein language models learn evolutionary statistics of interacting
        sequence motifs, 2024.
    """
    check_options("categorical_jacobian", options)
    require_language_model(model)
    letters = letters_of(model, symbols)
    at = residues_of(model, tokens, positions)
    question = jacobian_question(letters, at, reduce)
    return question.scan(model, tokens, positions=at, **options)


def dependency_question(
    letters: Sequence[int], positions: Sequence[int], epsilon: float = 1e-10
) -> Question:
    """Arguments of the scan that computes a dependency map, in bits."""
    odds = LogOdds(tuple(letters), epsilon)
    rows = tuple(positions)
    return Question(tuple(letters), odds, rows, reduce="max", diagonal=False)


def jacobian_question(
    letters: Sequence[int], positions: Sequence[int], reduce: Frobenius = PUBLISHED
) -> Question:
    """Arguments of the scan that computes the norms of a categorical Jacobian."""
    same = tuple(letters)
    return Question(same, "logits", tuple(positions), same, reduce)


def in_nats(scan: Scan) -> Scan:
    """The scan with values and their ends converted from bits to nats."""
    names = ("values", "lower", "upper")
    scaled = {name: getattr(scan, name) * math.log(2) for name in names}
    return dataclasses.replace(scan, **scaled)

"""Maps of the dependence of positions on one another, by a language model.

A scan is a table of changes of the output when another symbol, the substitute, is put at
one position; special symbols mark starts, ends or padding.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, get_args

from bounds.influence import LogOdds
from bounds.influence.build import TableOptions
from bounds.influence.table.frobenius import Frobenius
from bounds.influence.table.result import Scan
from bounds.recipes.question import Recipe, Unit, letters_and_residues, recipe
from jax_models import Transformer
from jax_models.arguments import choose_name, expect_kind

# Reduction of a categorical Jacobian: the tensor is symmetrised.
PUBLISHED = Frobenius(symmetrize="tensor")


@recipe
def dependency_map(
    model: Transformer,
    tokens: Any,
    *,
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    epsilon: float = 1e-10,
    unit: Unit = "bits",
    **options: Any,
) -> Recipe:
    """Largest change of a position's log-odds by a substitution at another.

        max over s, t of |log odds_j(t | x with x_i := s) - log odds_j(t | x)|

    for positions i and j, 0 for i = j. The odds are q / (1 - q): of the softmax over all
    logits the probabilities of the symbols, epsilon added to each, normalised to 1.

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
    letters, at = letters_and_residues(model, tokens, symbols, positions)
    choose_name("unit", unit, get_args(Unit))
    return Recipe(
        letters,
        at,
        LogOdds(letters, epsilon),
        TableOptions(at, reduce="max", diagonal=False),
        label=f"largest |Δ log-odds|, {unit}",
        finish=in_nats if unit == "nats" else lambda scan: scan,
    )


@recipe
def categorical_jacobian(
    model: Transformer,
    tokens: Any,
    *,
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    reduce: Frobenius = PUBLISHED,
    **options: Any,
) -> Recipe:
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
    letters, at = letters_and_residues(model, tokens, symbols, positions)
    expect_kind("reduce", reduce, Frobenius, "a norm of the centred tensor")
    table = TableOptions(at, letters, reduce)
    return Recipe(letters, at, "logits", table, "Δ logits, nats")


def in_nats(scan: Scan) -> Scan:
    """The scan with values, lower and upper bounds converted from bits to nats."""
    names = ("values", "lower", "upper")
    scaled = {name: getattr(scan, name) * math.log(2) for name in names}
    return dataclasses.replace(scan, **scaled)

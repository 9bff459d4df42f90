"""Changes of an output by substitutions or deletions at each position in turn.

A scan is a table of these changes, with the output of the unchanged input as `base`. The
target is the quantity watched of the output; special symbols mark starts, ends or padding.
"""

from collections.abc import Sequence
from typing import Any

from bounds.influence.build import TableOptions
from bounds.influence.targets.table import Watched
from bounds.recipes.question import Recipe, letters_of, recipe, residues_of
from jax_models import Transformer


@recipe
def mutagenesis(
    model: Transformer,
    tokens: Any,
    *,
    target: Watched = "logits",
    rows: Any = None,
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    **options: Any,
) -> Recipe:
    """Change of an output by every substitution, signed.

        z(x with x_i := s) - z(x)

    for position i and symbol s, z the entries of the target. `base` is z(x). The symbol
    x_i itself is the wild type at i.

    Args:
        model: a transformer, as a classifier of sequences.
        tokens: integers in [0, V) [n]; or a list of such inputs.
        target: as in `compute_influence`; the logits of a classifier by default.
        rows: as in `scan`; by default the row of a classifier's head, else the last.
        symbols: the substitutes; by default all that the model substitutes.
        positions: positions that are changed; by default all but special symbols.
        options: method, ties, rounding, dtype and run, as in `scan`.

    Returns:
        A `Scan` (position, symbol[, row][, target]), NaN at the wild type; of a list a
        list of them.

    Source:
        Zhou, Troyanskaya, Predicting effects of noncoding variants with deep
        learning-based sequence model, 2015: "in silico saturated mutagenesis".
    """
    letters, at = letters_of(model, symbols), residues_of(model, tokens, positions)
    return Recipe(letters, at, target, TableOptions(rows, reduce="none"))


@recipe
def deletions(
    model: Transformer,
    tokens: Any,
    *,
    target: Watched = "activation",
    rows: Any = None,
    positions: Sequence[int] | None = None,
    reduce: Any = None,
    **options: Any,
) -> Recipe:
    """Changes of rows by the deletion of each token in turn.

        z_j'(x without x_i) - z_j(x),   j' = j for j < i, j - 1 for j > i

    for position i and row j. The deleted position's own row has no value, NaN; a pooled
    target is compared as it is. The cosine distance of pooled vectors scores
    perturbations of single biological cells.

    Args:
        model: a transformer.
        tokens: integers in [0, V) [n], n at least 2; or a list of such inputs.
        target: as in `compute_influence`; of targets of all rows together only pooled
            ones.
        rows: as in `scan`, without "own".
        positions: deleted positions; by default all but special symbols.
        reduce: None or "none", as in `scan`.
        options: method ("exhaustive", or "partial" under a causal mask; "auto" is the
            cheaper), ties, rounding, dtype and run, as in `scan`.

    Returns:
        A `Scan` (position[, row][, target]); of a list a list of them.

    Source:
        Theodoris et al., Transfer learning enables predictions in network biology, 2023:
        "in silico deletion", scored by the cosine similarity of embeddings.
    """
    table = TableOptions(rows, reduce=reduce, edit="delete")
    return Recipe(None, residues_of(model, tokens, positions), target, table)

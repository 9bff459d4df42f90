"""In-silico mutagenesis: what every substitution does to an output."""

from collections.abc import Sequence
from typing import Any

from bounds.influence.batch import of_each_input
from bounds.influence.scan import Scan
from bounds.influence.targets.table import Watched
from bounds.recipes.question import Question, letters_of, residues_of
from jax_models import Transformer


@of_each_input
def mutagenesis(
    model: Transformer,
    tokens: Any,
    *,
    target: Watched = "logits",
    rows: Any = None,
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    **options: Any,
) -> Scan:
    """Change of an output by every substitution, signed.

        z(x with x_i := s) - z(x)

    for position i and symbol s, z the entries of the target. `base` is z(x).

    Args:
        model: a transformer, as a classifier of sequences.
        tokens: integers in [0, V) [n]; or a list of such inputs.
        target: as in `compute_influence`; the logits of a classifier by default.
        rows: as in `scan`; by default the row of a classifier's head, else the last.
        symbols: the substitutes; by default all that the model substitutes.
        positions: positions that are changed; by default all but special symbols.
        options: method, ties, rounding and run, as in `scan`.

    Returns:
        A `Scan` (position, symbol[, row][, target]), NaN at the wild type; of a list a
        list of them.

    Raises:
        InputError: an argument does not fit the model.

    Source:
        Zhou, Troyanskaya, Predicting effects of noncoding variants with deep
        learning-based sequence model, 2015: "in silico saturated mutagenesis".
    """
    question = Question(letters_of(model, symbols), target, rows)
    at = residues_of(model, tokens, positions)
    return question.scan(model, tokens, positions=at, **options)

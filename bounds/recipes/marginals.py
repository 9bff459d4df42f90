"""Scores of substitutions by a masked language model: its log-odds at the position.

The wild type of a position is the input's own symbol there. A scan is a table of
changes of logits by edits of the input; its base are the logits of the unchanged input.
Letters are the symbols that are scored.

Source:
    Meier, Rao, Verkuil, Liu, Sercu, Rives, Language models enable zero-shot prediction of
    the effects of mutations on protein function, 2021.
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, get_args

import numpy as np
from jaxtyping import Float

from bounds.influence.build import TableOptions
from bounds.influence.table.base_values import Base
from bounds.influence.table.result import Scan
from bounds.numbers.kind import kind_of_largest
from bounds.recipes.question import Recipe, Unit, letters_and_residues, recipe
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_integer


@recipe
def masked_marginals(
    model: Transformer,
    tokens: Any,
    *,
    mask: int | None = None,
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    unit: Unit = "nats",
    **options: Any,
) -> Recipe:
    """Log-odds of each symbol against the wild type, where the position is masked.

        log p(t | x with x_i := mask)_i - log p(x_i | x with x_i := mask)_i

    for position i and symbol t: one pass for each position. `base` are the log-odds of
    the unmasked input, those of `wild_type_marginals`.

    Args:
        model: a masked language model.
        tokens: integers in [0, V) [n]; or a list of such inputs.
        mask: number of the mask; by default the one that the model's token dropout names,
            as in ESM-2.
        symbols: the symbols that are scored; by default all that the model substitutes.
            Probabilities are of all symbols, which cancels.
        positions: scored positions; by default all but special symbols and masks: a
            position that is masked already has no wild type.
        unit: "nats" (published) or "bits".
        options: method, ties, rounding, dtype and run, as in `scan`.

    Returns:
        A `Scan` (position, symbol), NaN at the wild type; of a list a list of them.

    Source:
        Meier et al. 2021, the masked marginal probability.
    """
    made = _log_odds(model, tokens, symbols, positions, unit, masked=True)
    if mask is not None:
        mask = expect_integer("mask", mask, 0, model.vocab_size - 1)
    elif model.token_dropout is not None:
        mask = model.token_dropout.mask
    else:
        raise InputError("the model names no mask; give mask=, its number")
    masked = [position for position in made.positions if tokens[position] == mask]
    if masked and positions is not None:
        raise InputError(
            f"position {masked[0]} is masked already, and has no wild type that symbols "
            "could be scored against; leave it out of positions"
        )
    at = [position for position in made.positions if position not in masked]
    return dataclasses.replace(made, symbols=(mask,), positions=at)


@recipe
def wild_type_marginals(
    model: Transformer,
    tokens: Any,
    *,
    symbols: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    unit: Unit = "nats",
) -> Recipe:
    """Log-odds of each symbol against the wild type, by one pass of the input itself.

        log p(t | x)_i - log p(x_i | x)_i

    Args:
        model: a masked language model.
        tokens: as in `masked_marginals`.
        symbols: as in `masked_marginals`.
        positions: as in `masked_marginals`.
        unit: "nats" (published) or "bits".

    Returns:
        A `Scan` (position, symbol), NaN at the wild type; of a list a list of them.

    Source:
        Meier et al. 2021, the wild-type marginal probability.
    """
    return _log_odds(model, tokens, symbols, positions, unit, masked=False)


def _log_odds(
    model: Transformer,
    tokens: Any,
    symbols: Sequence[int] | None,
    positions: Sequence[int] | None,
    unit: Unit,
    masked: bool,
) -> Recipe:
    """Recipe of log-odds of symbols against the wild type, at each position."""
    letters, at = letters_and_residues(model, tokens, symbols, positions)
    choose_name("unit", unit, get_args(Unit))
    return Recipe(
        None,
        at,
        "logits",
        TableOptions("own", reduce="none"),
        label=f"log-odds against the wild type, {unit}",
        num_scored=len(letters),
        finish=functools.partial(_scores, letters=letters, unit=unit, masked=masked),
        one_pass=not masked,
    )


def _scores(scan: Scan, letters: Sequence[int], unit: Unit, masked: bool) -> Scan:
    """Scan of log-odds of `letters`, from a scan of each changed position's logits."""
    base = scan.base_of
    assert isinstance(base, Base) and scan.base is not None
    odds = _against_wild_type(scan, scan.base[:, 0], letters, unit)
    values = _against_wild_type(scan, (scan.values + scan.base)[:, 0], letters, unit)
    known = scan.rounding != "none" and bool(scan.enclosed.any())
    half, enclosed = np.zeros_like(values), np.zeros(values.shape, bool)
    if known:
        # Both logits are off by the radius of the base and by that of the change.
        each = np.maximum(scan.upper - scan.values, scan.values - scan.lower)
        each = np.where(scan.enclosed, each + base.radii(), np.nan)[:, 0]
        half = _against_wild_type(scan, each, letters, unit, np.add)
        enclosed = ~np.isnan(half)
        half = np.where(enclosed, half, 0.0)
    lower, upper = values - half, values + half
    return dataclasses.replace(
        scan,
        values=values,
        lower=lower,
        upper=upper,
        enclosed=enclosed,
        axes=("position", "symbol"),
        symbols=np.asarray(letters),
        target_symbols=None,
        base_of=functools.partial(np.asarray, odds) if masked else None,
        kind=kind_of_largest(values, lower, upper) if known else "estimated",
    )


def _against_wild_type(
    scan: Scan,
    table: Float[np.ndarray, "positions symbols"],
    letters: Sequence[int],
    unit: Unit,
    join: Any = np.subtract,
) -> Float[np.ndarray, "positions letters"]:
    """`join` of each letter's entry of `table` and the wild type's; NaN at the latter."""
    own = scan.tokens[scan.positions][:, None]
    wild = np.take_along_axis(table, own, axis=1)
    found = join(table[:, list(letters)], wild) / (math.log(2) if unit == "bits" else 1)
    return np.where(own == np.asarray(letters), np.nan, found)

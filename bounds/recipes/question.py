"""Arguments of scans that recipes fix, and checks of their symbols and positions.

A recipe is a published map or score, computed by one scan: the changes of an output by
edits of an input at each of several positions.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from bounds.influence.scan import Scan, scan
from jax_models import InputError, Transformer
from jax_models.arguments import expect_integers, show
from jax_models.format.model_check import check_model
from jax_models.run.evaluate import check_tokens

# Units of logarithms: of base e, or 2.
Unit = Literal["nats", "bits"]


@dataclasses.dataclass(frozen=True)
class Question:
    """Arguments of `scan` that a recipe fixes; fields are named as its parameters."""

    symbols: tuple[int, ...]  # the substitutes
    target: Any
    rows: Any = None
    target_symbols: tuple[int, ...] | None = None
    reduce: Any = "none"
    diagonal: bool = True

    def scan(self, model: Any, tokens: Any, **options: Any) -> Scan:
        """Calls `scan` for one input with these arguments and `options`."""
        return scan(model, tokens, **vars(self), **options)


# Options of recipes, as in `scan`.
OPTIONS = ("method", "ties", "rounding", "dtype", "run")


def check_options(recipe: str, options: Mapping[str, Any], sets: bool = True) -> None:
    """Raises a `TypeError` for unknown options, and if `sets` for those of `Question`."""
    fields = [x.name for x in dataclasses.fields(Question)] if sets else []
    for name in options:
        if name in fields:
            raise TypeError(f"{recipe}() sets {name} itself; leave it out")
        if name not in OPTIONS:
            raise TypeError(f"{recipe}() got an unexpected keyword argument {name!r}")


def letters_of(model: Transformer, symbols: Sequence[int] | None) -> tuple[int, ...]:
    """The symbols of a recipe, checked; by default all that the model substitutes."""
    model = check_model(model)
    if symbols is None:
        return tuple(model.substitutable or range(model.vocab_size))
    given = tuple(expect_integers("symbols", symbols, 0, model.vocab_size - 1))
    if not given or len(set(given)) < len(given):
        raise InputError(
            f"symbols = {show(given)}; expected one or more different symbols"
        )
    return given


def residues_of(
    model: Transformer, tokens: Any, positions: Sequence[int] | None
) -> Sequence[int]:
    """Positions, checked; by default all of symbols substitutable and not special."""
    model = check_model(model)
    checked = np.asarray(check_tokens(model.vocab_size, tokens))
    if positions is not None:
        given = expect_integers("positions", positions, 0, checked.size - 1)
        return list(map(int, given))
    letters = model.substitutable or range(model.vocab_size)
    kept = np.setdiff1d(letters, model.special or ())
    return np.flatnonzero(np.isin(checked, kept)).tolist()


def require_language_model(model: Transformer) -> None:
    """Raises `InputError` unless the model has one logit for each symbol."""
    if check_model(model).classes is None:
        raise InputError(
            'the model has no head (head "none" was asked for, or it has none) and so no '
            "logits; this recipe needs a language model, with a logit for each symbol"
        )
    if model.classes != model.vocab_size:
        raise InputError(
            f"the model has {model.classes} logits and {model.vocab_size} symbols; this "
            "recipe needs a language model, with a logit for each symbol"
        )

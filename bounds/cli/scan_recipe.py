"""Recipes of `scan` by name: the arguments that they set, and what they make of a scan."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

import jax_models as jm
from bounds.cli.options.scan import ScanOptions
from bounds.influence.scan import Scan
from bounds.influence.targets.table import as_value
from bounds.recipes.maps import dependency_question, jacobian_question
from bounds.recipes.marginals import mask_of, masked_scores, wild_type_marginals
from bounds.recipes.question import Question, letters_of, require_language_model

# Flags that a recipe sets, and names of masks in vocabularies.
SET = ("rows", "target", "target_symbols", "reduce", "diagonal", "edit", "candidates")
MASKS = ("<mask>", "[MASK]")
AXES = ("position", "symbol")
ONE_PASS = ("wild_type_marginals",)  # recipes that are no scan
ODDS = "log-odds against the wild type, nats"


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe for one input."""

    question: Question
    label: str  # of the values, with their unit
    axes: tuple[str, ...] | None = None  # of what it makes; None: of the scan
    finish: Callable[[Scan], Scan] = lambda scan: scan
    one_pass: Callable[[], Scan] | None = None  # of `ONE_PASS`


def read_recipe(
    options: ScanOptions,
    model: jm.Transformer,
    tokenizer: jm.Tokenizer | None,
    tokens: np.ndarray,
    positions: Sequence[int],
    symbols: np.ndarray | None,
) -> Recipe:
    """Recipe of `--recipe` but mutagenesis; refuses flags that it sets itself."""
    named = options.recipe
    require_language_model(model)
    for name in SET:
        if options.is_given(name):
            raise jm.InputError(f"--recipe={named} sets --{name}; leave it out")
    letters = letters_of(model, None if symbols is None else symbols.ravel().tolist())
    if named == "dependency_map":
        question = dependency_question(letters, positions)
        return Recipe(question, as_value(question.target).label)
    if named == "categorical_jacobian":
        question = jacobian_question(letters, positions)
        return Recipe(question, as_value("logits").label)
    if named in ONE_PASS:
        question = Question(letters, "logits", "own")

        def one_pass() -> Scan:
            return wild_type_marginals(
                model, tokens, symbols=letters, positions=positions
            )

        return Recipe(question, ODDS, AXES, one_pass=one_pass)
    mask: int | None = None
    for name in MASKS:
        if tokenizer is not None and name in tokenizer.names:
            mask = tokenizer.symbol(name)
    question = Question((mask_of(model, mask),), "logits", "own")
    return Recipe(question, ODDS, AXES, lambda scan: masked_scores(scan, letters))

"""The table of recipes by name, each with the options of a scan that it sets.

A recipe is a published score, computed by a scan: a table of changes of an output by
edits of an input at each position.
"""

import inspect
from typing import Any

from bounds import recipes
from bounds.influence.report import MASKS
from bounds.recipes.question import Recipe
from jax_models import InputError, Tokenizer, Transformer

_SET = ("rows", "target", "target_symbols", "diagonal", "edit", "candidates")
# A categorical Jacobian has no fixed reduction.
RECIPES = {
    "masked_marginals": (*_SET, "reduce"),
    "wild_type_marginals": (*_SET, "reduce"),
    "dependency_map": (*_SET, "reduce"),
    "categorical_jacobian": _SET,
    "mutagenesis": ("edit",),
}
OF_LOGARITHMS = ("masked_marginals", "wild_type_marginals", "dependency_map")
ONE_PASS = ("wild_type_marginals",)
# Options of changes, of which a recipe of one pass has none.
OF_CHANGES = (
    *("method", "precision", "rounding", "ties", "memory_limit", "num_devices"),
)


def plan_recipe(
    name: str,
    model: Transformer,
    tokens: Any,
    tokenizer: Tokenizer | None,  # whose mask is taken
    **given: Any,
) -> Recipe:
    """Recipe `name` for one input; `InputError` if its mask symbol is not known."""
    if name == "masked_marginals":
        masks = [] if tokenizer is None else [x for x in MASKS if x in tokenizer.names]
        if tokenizer is not None and masks:
            given["mask"] = tokenizer.symbol(masks[-1])
        elif model.token_dropout is None:
            raise InputError(
                f"--recipe={name}: no mask is known; name with --tokenizer a vocabulary "
                f"that has {' or '.join(MASKS)}"
            )
    return inspect.unwrap(getattr(recipes, name))(model, tokens, **given)

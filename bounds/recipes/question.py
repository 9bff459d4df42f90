"""Recipes, and checks of their symbols and positions.

A recipe is a published map or score, computed by one scan: the changes of an output by
edits of an input at each of several positions. Symbols are the substitutes put in
there.
"""

import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec

import numpy as np

from bounds.influence.answer import answer, of_each_input, scan_of
from bounds.influence.build import TableOptions, build_request
from bounds.influence.choice import precision_of
from bounds.influence.method import Run, check_run
from bounds.influence.request import InfluenceRequest
from bounds.influence.rounding import hypotheses_of
from bounds.influence.table.result import Scan
from jax_models import InputError, Transformer
from jax_models.arguments import expect_integers, show
from jax_models.format.model_check import check_model
from jax_models.run.evaluate import check_tokens

P = ParamSpec("P")
# Units of logarithms: of base e, or 2.
Unit = Literal["nats", "bits"]
# Options of recipes, as in `scan`, and arguments of `scan` that recipes set.
OPTIONS = ("method", "ties", "rounding", "dtype", "run")
SET = ("target", "rows", "target_symbols", "reduce", "diagonal")


@dataclasses.dataclass(frozen=True)
class Recipe:
    """Options of a recipe's scan of one input, and function from scan to result."""

    symbols: tuple[int, ...] | None  # the substitutes, if any
    positions: list[int]
    target: Any
    table: TableOptions
    label: str = ""  # of the values, with their unit
    num_scored: int | None = None  # symbols of a table (position, symbol) of `finish`
    finish: Callable[[Scan], Scan] = lambda scan: scan
    one_pass: bool = False  # of the input itself, where nothing is replaced

    def scan(
        self,
        model: Transformer,
        tokens: Any,
        dtype: Any = None,
        run: Run | None = None,
        **options: Any,
    ) -> Scan:
        """Result of the recipe for one input; `options` are those of `bounds.scan`."""
        run = check_run(run)
        request = build_request(
            model,
            tokens,
            target=self.target,
            symbols=self.symbols,
            positions=self.positions,
            table=self.table,
            dtype=dtype,
            run=run,
            precision=precision_of(options.get("method", "auto")),
        )
        if self.one_pass:
            return self.finish(_scan_unchanged(request))
        return self.finish(answer(request, run=run, **options))


def _scan_unchanged(request: InfluenceRequest) -> Scan:
    """Scan of the unchanged input: all changes 0, with values of the target as base."""
    assert request.layout is not None
    none = np.zeros((len(request.layout.positions), 1, *request.layout.shape))
    stated = {
        "target": request.target,
        "kind": "exact",
        "method": "exhaustive",
        "reason": "one pass of the input",
        "rounding": "all",
        "substitutions": 0,
        "ties": None,
        "hypotheses": hypotheses_of("all"),
    }
    return scan_of(request, (none, none, none, none == 0), stated)


def recipe(plan: Callable[P, Recipe]) -> Callable[P, Any]:
    """Decorates a function that returns a `Recipe`, to run it on one or more inputs."""
    signature = inspect.signature(plan)
    own = signature.parameters.keys()

    @of_each_input
    @functools.wraps(plan)
    def compute(model: Any, tokens: Any, **given: Any) -> Any:
        options = {name: x for name, x in given.items() if name not in own}
        for name in options.keys() - {*OPTIONS}:
            if name in SET and own >= {"symbols", "options"}:
                raise TypeError(f"{plan.__name__}() sets {name} itself; leave it out")
            raise TypeError(
                f"{plan.__name__}() got an unexpected keyword argument {name!r}"
            )
        model = check_model(model)
        made: Recipe = plan(model, tokens, **given)  # pyright: ignore[reportCallIssue]
        return made.scan(model, tokens, **options)

    values = signature.replace(return_annotation=Scan | list[Scan])
    vars(compute).update(__signature__=values)
    return compute  # pyright: ignore[reportReturnType]


def letters_of(model: Transformer, symbols: Sequence[int] | None) -> tuple[int, ...]:
    """Checked symbols that a recipe scores; by default all that the model substitutes."""
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
) -> list[int]:
    """Checked positions to edit; by default those of substitutable, not special, symbols."""
    checked = np.asarray(check_tokens(model.vocab_size, tokens))
    if positions is not None:
        given = expect_integers("positions", positions, 0, checked.size - 1)
        return list(map(int, given))
    letters = model.substitutable or range(model.vocab_size)
    kept = np.setdiff1d(letters, model.special or ())
    return np.flatnonzero(np.isin(checked, kept)).tolist()


def letters_and_residues(
    model: Transformer,
    tokens: Any,
    symbols: Sequence[int] | None,
    positions: Sequence[int] | None,
) -> tuple[tuple[int, ...], list[int]]:
    """Checked symbols, and positions to edit; refuses models without a logit per symbol."""
    if model.classes != model.vocab_size:
        found = f"{model.classes} logits and {model.vocab_size} symbols"
        if model.classes is None:
            found = (
                'no head (head "none" was asked for, or it has none) and so no logits'
            )
        raise InputError(
            f"the model has {found}; this recipe needs a language model, with a logit for "
            "each symbol"
        )
    return letters_of(model, symbols), residues_of(model, tokens, positions)

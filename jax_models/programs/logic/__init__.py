"""Temporal logic with counting: syntax, semantics, applications, and the compiler."""

from jax_models.arguments import read_alphabet
from jax_models.programs.logic.applications import (
    ending_ngram,
    flip_flop,
    hops,
    induction,
    majority,
    odd_parity,
    odd_parity_by_halves,
    starting_ngram,
)
from jax_models.programs.logic.compile import (
    compile_formula,
    exact_length,
    truth_values,
)
from jax_models.programs.logic.modes import MODES, Mode
from jax_models.programs.logic.parser import format_formula, parse_formula
from jax_models.programs.logic.semantics import evaluate_formula, satisfies
from jax_models.programs.logic.syntax import Count, Formula

__all__ = [
    "MODES",
    "Count",
    "Formula",
    "Mode",
    "compile_formula",
    "ending_ngram",
    "evaluate_formula",
    "exact_length",
    "flip_flop",
    "format_formula",
    "hops",
    "induction",
    "majority",
    "odd_parity",
    "odd_parity_by_halves",
    "parse_formula",
    "read_alphabet",
    "satisfies",
    "starting_ngram",
    "truth_values",
]

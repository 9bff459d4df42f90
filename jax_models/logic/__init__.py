"""Temporal logic with counting: syntax, parser and printer, semantics, applications."""

from jax_models.logic.alphabet import read_alphabet
from jax_models.logic.parser import parse_formula
from jax_models.logic.printer import format_formula
from jax_models.logic.semantics import evaluate_formula, satisfies
from jax_models.logic.syntax import Count, Formula

__all__ = [
    "Count",
    "Formula",
    "evaluate_formula",
    "format_formula",
    "parse_formula",
    "read_alphabet",
    "satisfies",
]

"""Inputs that a hard-attention model cannot tell apart: a restriction and its pair.

Fixes few symbols so that the model's final activation at the query is the same for all
completions, and names two of them of which exactly one is in the language.
`certificate.json` is what proves it; --verify=FILE checks one against the model, by code
that the search has no part in. Finished attempts are kept in --out: the same command
continues where it stopped. The figure shows who can attend to whom before and after
(n <= 24), or the free share after each stage.
"""

import dataclasses
from typing import Any

from bounds.cli.shared.groups import Figure, HardWeighting, Model, Query, Stored
from bounds.cli.shared.options import again, option
from bounds.cli.shared.values import IntegersParser

NO_LANGUAGE = "none"
SEARCHING: dict[str, Any] = {
    "used_if": lambda one: one.verify is None,
    "otherwise": "is of the search, and --verify checks a certificate; leave it out",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RestrictOptions(HardWeighting, Model, Query, Stored, Figure):
    """Options of the command."""

    COMMAND = "restrict"

    length: int = option(64, "Tokens n of the inputs, an end token included.", least=1)
    language: str = option(
        "parity",
        "Language that the pair is about: {words}, or an automaton's file "
        "(docs/notation.md); ones is 1*, anbn a^m b^m, and none looks for a restriction "
        "alone.",
        *("bounds.restriction.counterexample:NAMES", NO_LANGUAGE),
        file=True,
    )
    verify: str | None = option(
        None,
        "Certificate to check against the model, instead of looking for one.",
        key=False,
    )
    weighting: str | None = again(
        HardWeighting, "weighting", None, " A random model's is leftmost_hard."
    )
    query: int = again(Query, "query", -1)
    caps: tuple[int, ...] | None = option(
        None,
        "For each layer but the last, the free symbols that a row may depend on; by "
        "default a few per head and layer, varied between attempts.",
        parser=IntegersParser(),
        **SEARCHING,
    )
    pre_restriction: str | None = option(
        None,
        "File of n integers separated by whitespace, or a NumPy file: tokens that are "
        "fixed beforehand, -1 where a position is free. By default what the language asks "
        "for: brackets around a window, an end token.",
        file=True,
        **SEARCHING,
    )
    method: str = option(
        "auto",
        "The search; auto is greedy, and alteration where that fails.",
        *("auto", "greedy", "alteration"),
        **SEARCHING,
    )
    attempts: int | None = option(
        None,
        "Searches, of which the best is taken; by default 6 for n <= 128, else 1.",
        least=1,
        **SEARCHING,
    )
    reverse_pass: bool | None = option(
        None,
        "Whether to free again what was fixed needlessly; by default for n <= 128.",
        **SEARCHING,
    )
    fresh: bool = again(Stored, "fresh", False, **SEARCHING)
    figure_format: tuple[str, ...] = again(Figure, "figure_format", "png", **SEARCHING)

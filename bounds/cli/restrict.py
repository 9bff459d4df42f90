"""Two inputs that a hard-attention model cannot tell apart, with a certificate.

Fixes few symbols so that the model's final activation at the query is the same for all
completions, and names two of them of which exactly one is in the language.
`certificate.json` is what proves it; --verify=FILE checks one against the model, by code
that the search has no part in. Finished attempts are kept in --out: the same command
continues where it stopped. The figure, of n <= 24, shows who can attend to whom before
and after.

    --length=64 --num_layers=2 --language=dyck1 --out=results/pair
    --verify=results/pair/certificate.json --num_layers=2 --language=dyck1 --out=results/pair
"""

from functools import partial
from typing import Any

import jax_models as jm
from bounds import restriction
from bounds.cli.shared.groups import Figure, HardWeighting, Model, Query, Stored
from bounds.cli.shared.input_source import read_tokens
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work
from bounds.cli.shared.subject import weighted_model
from bounds.figures.restriction import LEGIBLE, restriction_figure
from bounds.restriction.analysis import PartialInput
from bounds.restriction.checking.claim import decode_claim
from bounds.restriction.counterexample import NAMES
from bounds.restriction.record import find_kept
from bounds.store.output import sha256
from bounds.store.results import ResultStore
from jax_models.arguments import show
from jax_models.errors import errors_of
from jax_models.languages import RegularLanguage
from jax_models.run.progress import Progress, tell

NO_LANGUAGE = "none"
ASKED = ("query", "method", "attempts", "seed", "pre_restriction")  # of a search
SEARCHING: dict[str, Any] = {
    "used_if": lambda one: one.verify is None,
    "otherwise": "is of the search, and --verify checks a certificate; leave it out",
}


class RestrictOptions(HardWeighting, Model, Query, Stored, Figure):
    """Options of the command."""

    length: int = option(64, "Tokens n of the inputs, an end token included.", least=1)
    language: str = option(
        "parity",
        "Language that the pair is about: {words}, or an automaton's file "
        "(docs/notation.md); ones is 1*, anbn a^m b^m, and none looks for a restriction "
        "alone.",
        *(NAMES, NO_LANGUAGE),
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
    fresh: bool = again(Stored, "fresh", False, **SEARCHING)
    figure_format: tuple[str, ...] = again(Figure, "figure_format", "png", **SEARCHING)


def plan(options: RestrictOptions) -> Work | None:
    """Work that searches for symbols to fix; None if --verify checked a certificate."""
    if options.verify is not None:
        verify(options, options.verify)
        return None
    language, length = read_language(options.language), options.length
    model = restricted_model(options, language, length)
    asked: dict[str, Any] = {name: getattr(options, name) for name in ASKED}
    if (path := options.pre_restriction) is not None:
        asked["pre_restriction"], *others = read_tokens(path)
        if others:
            raise jm.InputError(
                f"--pre_restriction={path} holds {len(others) + 1} rows; expected one"
            )
    # The file in which a model stands is not among what the search depends on.
    config = {
        **options.key("dtype"),
        "language": getattr(language, "text", language),
        "model_sha256": sha256(jm.model_bytes(model)),
        "n": length,
        **asked,
    }
    search = restriction.find_restriction
    if language != NO_LANGUAGE:
        search = partial(restriction.find_counterexample, language=language)

    def look(store: ResultStore, **more: Any) -> tuple[restriction.Restriction, float]:
        how = {"length": length, "fresh": options.fresh, **asked, **more}
        return find_kept(store, config, search, model, **how)

    def finish(store: ResultStore) -> Exports:
        def report(stage: str, partial: PartialInput) -> None:
            tell(f"{stage}: positions left free: {len(partial.free)}")

        with Progress(1, "searches") as progress:
            found, seconds = look(store, report=report)
            progress.advance("verified")
        record = {**found.certificate, "seconds": seconds, "verified": True}
        lines = found.describe(seconds)
        figure = partial(restriction_figure, model, found)
        legible = figure if length <= LEGIBLE else None
        return Exports(record, "\n".join(lines), figure=legible)

    named = {"language": options.language, "verified": True}
    rows = lambda store: [look(store)[0].row() | named]
    return Work(finish, opening=f"restrict: n = {length}", rows=rows, is_kept=True)


def read_language(name: str) -> Any:
    """Returns a known language's name, or the language that a file describes."""
    return name if name in (*NAMES, NO_LANGUAGE) else RegularLanguage.read(name)


def restricted_model(options: Model, language: Any, length: int) -> jm.Transformer:
    """Model of the flags with a language's symbols; leftmost-hard if random."""
    own = len(getattr(language, "symbols", ()))  # of a file's; names have none
    sizes = {"vocab_size": 4 if language == "dyck2" else max(2, own)}
    return weighted_model(options, "leftmost_hard", **sizes, max_length=length)


def verify(options: RestrictOptions, file: str) -> None:
    """Checks the certificate in `file`; if rejected, raises `InputError` with the reason."""
    certificate = restriction.read_certificate(file)
    with errors_of(f"certificate {file} is rejected: malformed"):
        claim = decode_claim(certificate)
    length, language = claim.length, claim.automaton or claim.language or NO_LANGUAGE
    query = options.query + (length if options.query < 0 else 0)
    asked = read_language(options.language)
    for name, value, there in (
        ("length", options.length, length),
        ("language", *(getattr(x, "text", x) for x in (asked, language))),
        ("query", query, claim.query),
    ):
        if name in options.given and value != there:
            raise jm.InputError(
                f"--{name}={value}, but certificate {file} has {show(there)}; leave "
                "the flag out, or name another certificate"
            )
    checked = restriction.check_certificate(
        restricted_model(options, language, length), certificate
    )
    if not checked.accepted:
        raise jm.InputError(f"certificate {file} is rejected: {checked.reasons[0]}")
    print("\n  ".join([f"certificate {file} is accepted", *checked.reasons]))

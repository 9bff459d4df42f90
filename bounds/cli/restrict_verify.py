"""Check of a certificate against the model of the flags."""

from typing import Any

import jax_models as jm
from bounds.cli.options.restrict import NO_LANGUAGE, RestrictOptions
from bounds.cli.shared.model_source import weighted_model
from bounds.restriction import check_certificate, read_certificate
from jax_models.arguments import show


def restricted_model(
    options: RestrictOptions, language: Any, length: int
) -> jm.Transformer:
    """Model of the flags for inputs of a language; random ones are leftmost-hard."""
    return weighted_model(
        options,
        vocab_size=4 if language == "dyck2" else 2,
        max_length=length,
        weighting="leftmost_hard",
    )


def verify(options: RestrictOptions, file: str) -> None:
    """Checks a certificate; a rejected one is an input error, with the first reason."""
    certificate = read_certificate(file)
    n, asked = certificate.get("n"), ("length", "language", "query")
    given = {x: getattr(options, x) for x in asked if x in options.given}
    _refuse_other(given, file, certificate)
    length = n if isinstance(n, int) and n > 0 else 1
    model = restricted_model(options, certificate.get("language"), length)
    verification = check_certificate(model, certificate)
    if not verification.accepted:
        raise jm.InputError(
            f"certificate {file} is rejected: {verification.reasons[0]}"
        )
    print(f"certificate {file} is accepted")
    for reason in verification.reasons:
        print(f"  {reason}")


def _refuse_other(given: dict[str, Any], file: str, found: dict[str, Any]) -> None:
    """Raise `InputError` for flags that ask of a certificate what it is not about."""
    there = {"length": found.get("n"), "query": found.get("query")}
    there["language"] = found.get("language") or NO_LANGUAGE
    if isinstance(n := there["length"], int) and given.get("query", 0) < 0:
        given = {**given, "query": given["query"] + n}
    for name, value in given.items():
        if value != there[name]:
            raise jm.InputError(
                f"--{name}={value}, but certificate {file} has {show(there[name])}; leave "
                "the flag out, or name another certificate"
            )

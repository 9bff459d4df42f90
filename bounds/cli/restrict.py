"""Inputs that a hard-attention model cannot tell apart: a restriction and its pair."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

import jax_models as jm
from bounds.cli.options.restrict import NO_LANGUAGE, RestrictOptions
from bounds.cli.shared.input_source import read_tokens
from bounds.cli.shared.model_source import weighted_model
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.progress import SECONDS_BETWEEN_LINES
from bounds.cli.shared.runner import Exports, Work
from bounds.figures.restriction import restriction_figure
from bounds.restriction import (
    Restriction,
    Verification,
    check_certificate,
    find_counterexample,
    find_restriction,
    read_certificate,
)
from bounds.restriction.attempts import ClosedInput, Stage
from bounds.restriction.outline import outline_restriction
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.store.output import sha256
from bounds.store.sweep import Results
from jax_models.arguments import show

# Every language has its bits at the tokens 0 and 1.
SYMBOLS = (0, 1)
# What a random model is weighted by where nothing is said: softmax has no restrictions.
WEIGHTING = "leftmost_hard"


class Parts:
    """Returns finished parts of a search from a store, and records new ones."""

    def __init__(
        self, store: Results, config: Mapping[str, Any], fresh: bool, num_symbols: int
    ):
        """Keep the parts of the search that a configuration decides; `fresh` finds none."""
        rho = [range(FREE, num_symbols), config["n"]]
        stage = {"name": str, "rho": rho, "seconds": float}
        self.form = {"rho": rho, "method": str, "stages": [stage]}
        self.store = store
        self.config = config
        self.fresh = fresh
        self.earlier = 0.0  # seconds that parts took which an earlier run finished

    def __call__(self, name: str, work: Callable[[], ClosedInput]) -> ClosedInput:
        """Returns the result of a part, recorded or done now."""
        config = {**self.config, "part": name}
        row = None if self.fresh else self.store.find(config, self.form)
        if row is not None:
            self.earlier += self.store.seconds(config) or 0.0
            return _read(row)
        start = time.monotonic()
        found = work()
        self.store.record(config, _recorded(found), time.monotonic() - start)
        return found


def _recorded(found: ClosedInput) -> dict[str, Any]:
    return {
        "rho": found.partial.tokens.tolist(),
        "method": found.method,
        "stages": [
            {"name": s.name, "rho": s.partial.tokens.tolist(), "seconds": s.seconds}
            for s in found.stages
        ],
    }


def _read(row: Mapping[str, Any]) -> ClosedInput:
    def partial(tokens: list[int]) -> PartialInput:
        return PartialInput(np.asarray(tokens, np.int32), SYMBOLS)

    stages = (
        Stage(stage["name"], partial(stage["rho"]), stage["seconds"])
        for stage in row["stages"]
    )
    return ClosedInput(partial(row["rho"]), row["method"], tuple(stages))


def plan(options: RestrictOptions) -> Work | None:
    """The search for a restriction; None where a certificate was checked."""
    prepare_jax(options)
    if options.verify is not None:
        _verify(options, options.verify)
        return None
    model, config, search = _ask(options)
    start = time.monotonic()

    def look(store: Results, **more: Any) -> tuple[Restriction, float]:
        parts = Parts(store, config, options.fresh, model.vocab_size)
        found = search(remember=parts, **more)
        # What is written is what would be accepted: the checker is asked before.
        _require(check_certificate(model, found.certificate))
        return found, parts.earlier

    def finish(store: Results) -> Exports:
        found, earlier = look(store, report=_Lines())
        seconds = time.monotonic() - start + earlier
        record = {**found.certificate, "seconds": seconds, "verified": True}
        said = "The independent checker accepts the certificate."
        return Exports(
            record,
            "\n".join([*describe(found, seconds), said]),
            figure=lambda: restriction_figure(outline_restriction(model, found)),
        )

    def rows(store: Results) -> list[dict[str, Any]]:
        found, _ = look(store)
        return [
            {
                "n": len(found.rho),
                "language": options.language,
                "free": len(found.free),
                "given_free": int((found.given == FREE).sum()),
                "method": found.method,
                "mode": found.mode,
                "log2_misclassified": found.log2_misclassified,
                "verified": True,
                "certificate": found.certificate,
            }
        ]

    return Work(
        finish, opening=f"restrict: n = {options.length}", rows=rows, is_kept=True
    )


def _require(verified: Verification) -> None:
    """Raise `InputError` for a certificate that the checker rejects."""
    if not verified.accepted:
        raise jm.InputError(
            f"the independent checker rejects this certificate: {verified.reasons[0]}"
        )


def _ask(
    options: RestrictOptions,
) -> tuple[jm.Transformer, dict[str, Any], Callable[..., Restriction]]:
    """Returns the model, all that a search depends on, and the search."""
    language, length = options.language, options.length
    model = weighted_model(
        options,
        vocab_size=_num_symbols(language),
        max_length=length,
        weighting=WEIGHTING,
    )
    given = None
    if options.pre_restriction is not None:
        given, *others = read_tokens(options.pre_restriction)
        if others:
            raise jm.InputError(
                f"--pre_restriction={options.pre_restriction} holds {len(others) + 1} "
                "rows; expected one"
            )
    names = ("query", "caps", "method", "attempts", "reverse_pass", "seed")
    search: dict[str, Any] = {name: getattr(options, name) for name in names}
    search["pre_restriction"] = given
    # The file in which a model stands is not among what the search depends on.
    config = {
        **options.key("language", "dtype"),
        "model_sha256": sha256(jm.model_bytes(model)),
        "n": length,
        **search,
    }
    if language == NO_LANGUAGE:
        find = partial(find_restriction, model, length, **search)
    else:
        find = partial(find_counterexample, model, length, language, **search)
    return model, config, find


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


def _num_symbols(language: Any) -> int:
    """Returns the symbols of a random model where nothing is said."""
    return 4 if language == "dyck2" else 2


def _verify(options: RestrictOptions, file: str) -> None:
    """Checks a certificate; a rejected one is an input error, with the first reason."""
    certificate = read_certificate(file)
    n, asked = certificate.get("n"), ("length", "language", "query")
    given = {x: getattr(options, x) for x in asked if x in options.given}
    _refuse_other(given, file, certificate)
    model = weighted_model(
        options,
        vocab_size=_num_symbols(certificate.get("language")),
        max_length=n if isinstance(n, int) and n > 0 else 1,
        weighting=WEIGHTING,
    )
    verification = check_certificate(model, certificate)
    if not verification.accepted:
        raise jm.InputError(
            f"certificate {file} is rejected: {verification.reasons[0]}"
        )
    print(f"certificate {file} is accepted")
    for reason in verification.reasons:
        print(f"  {reason}")


def describe(found: Restriction, seconds: float) -> list[str]:
    """Returns what was found, in a few lines."""
    n, free = len(found.rho), len(found.free)
    given = int((found.given == FREE).sum())
    stages = ", ".join(f"{stage.free} after {stage.name}" for stage in found.stages)
    lines = [
        f"n = {n}: {free} of {given} positions stay free ({stages or 'nothing fixed'}); "
        f"found by {found.method} search in {seconds:.1f} s, decided in {found.mode} "
        "arithmetic.",
        f"The final activation at position {found.query} is the same for all 2^{free} "
        "completions.",
    ]
    if found.pair is not None:
        assert found.members is not None
        member = found.members.index(True)
        lines.append(
            f"Of this pair the {('first', 'second')[member]} alone is in "
            f"{found.language}:"
        )
        lines += [f"  {_text(tokens)}" for tokens in found.pair]
    if found.log2_misclassified is not None:
        read = "" if found.query == n - 1 else f", read at position {found.query}"
        lines.append(
            f"At least 2^{found.log2_misclassified} inputs of length {n} are "
            f"misclassified{read}."
        )
    return [*lines, *(reason[0].upper() + reason[1:] + "." for reason in found.reasons)]


def _text(tokens: np.ndarray) -> str:
    """Tokens as text, from both ends where there are many."""
    words = [str(token) for token in tokens.tolist()]
    if len(words) > 64:
        words = [*words[:32], "…", *words[-32:]]
    return " ".join(words)


class _Lines:
    """Prints a plain line on the state of a long search, every few seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, stage: str, partial: PartialInput) -> None:
        """Tell of a round, if the last line is long ago."""
        now = time.monotonic()
        if now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            print(f"{stage}: {len(partial.free)} positions are free", flush=True)

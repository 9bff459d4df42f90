"""Parts of a search as records of a store, and a restriction in sentences.

A restriction is a partial input (some positions fixed, others free) under which the
output is constant; a part of its search is an attempt or a pass, named in the store. A
counterexample is a pair of its completions, of which one is in a language.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from bounds.restriction.analysis import FREE
from bounds.restriction.checker import check_certificate
from bounds.restriction.restriction import Restriction
from bounds.restriction.search import ClosedInput, Read, Work
from bounds.store.file import explained
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, obtain
from jax_models.errors import InputError
from jax_models.model.transformer import Transformer


def find_kept(
    store: ResultStore,
    config: Mapping[str, Any],  # key of the search's parts
    search: Callable[..., Restriction],
    model: Transformer,
    *,
    fresh: bool,
    **asked: Any,
) -> tuple[Restriction, float]:
    """Restriction, read from a store or found, that is checked; seconds of its search."""
    seconds = 0.0

    def remember(name: str, work: Work, read: Read) -> ClosedInput:
        nonlocal seconds
        cell = Cell({**config, "part": name}, name, work)
        stored = obtain(store, cell, fresh=fresh)
        seconds += store.seconds(cell.config)
        with explained(store.path):
            return read(stored)

    found = search(model, remember=remember, **asked)
    # What is written is what would be accepted: the checker is asked before.
    if not (checked := check_certificate(model, found.certificate)).accepted:
        raise InputError(
            f"the independent checker rejects this certificate: {checked.reasons[0]}"
        )
    return found, seconds


def restriction_row(found: Restriction) -> dict[str, Any]:
    """Table row on a restriction, one of a sweep over lengths."""
    return {
        "n": len(found.rho),
        "free": len(found.free),
        "given_free": int((found.given == FREE).sum()),
        "method": found.method,
        "mode": found.mode,
        "log2_misclassified": found.log2_misclassified,
        "certificate": found.certificate,
    }


def describe_restriction(found: Restriction, seconds: float) -> list[str]:
    """Lines on an accepted restriction, its counterexample and misclassified inputs."""
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
        lines.append(
            f"At least 2^{found.log2_misclassified} inputs of length {n} are "
            f"misclassified{found.where_read}."
        )
    lines += [reason[0].upper() + reason[1:] + "." for reason in found.reasons]
    return [*lines, "The independent checker accepts the certificate."]


def _text(tokens: Int[np.ndarray, "tokens"]) -> str:
    """Tokens as text; of more than 64, the first and the last 32."""
    words = [str(token) for token in tokens.tolist()]
    if len(words) > 64:
        words = [*words[:32], "…", *words[-32:]]
    return " ".join(words)

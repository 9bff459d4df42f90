"""Parts of a search as records of a store, and a restriction in sentences."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Int

from bounds.restriction.attempts import ClosedInput, Stage
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.restriction import Restriction
from bounds.store.forms import Form

# Every language has its bits at the tokens 0 and 1.
SYMBOLS = (0, 1)


def part_form(length: int, num_symbols: int) -> Form:
    """Form of the record of a part of a search."""
    rho = [range(FREE, num_symbols), length]
    stage = {"name": str, "rho": rho, "seconds": float}
    return {"rho": rho, "method": str, "stages": [stage]}


def record_closed(found: ClosedInput) -> dict[str, Any]:
    """Record of a part of a search."""
    return {
        "rho": found.partial.tokens.tolist(),
        "method": found.method,
        "stages": [
            {"name": s.name, "rho": s.partial.tokens.tolist(), "seconds": s.seconds}
            for s in found.stages
        ],
    }


def read_closed(row: Mapping[str, Any]) -> ClosedInput:
    """The part of a search that a record holds."""

    def partial(tokens: list[int]) -> PartialInput:
        return PartialInput(np.asarray(tokens, np.int32), SYMBOLS)

    stages = (
        Stage(stage["name"], partial(stage["rho"]), stage["seconds"])
        for stage in row["stages"]
    )
    return ClosedInput(partial(row["rho"]), row["method"], tuple(stages))


def restriction_row(found: Restriction) -> dict[str, Any]:
    """A restriction as a row of a table."""
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
    """Lines on a restriction, its pair, and the number of misclassified inputs."""
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


def _text(tokens: Int[np.ndarray, "tokens"]) -> str:
    """Tokens as text, from both ends where there are many."""
    words = [str(token) for token in tokens.tolist()]
    if len(words) > 64:
        words = [*words[:32], "…", *words[-32:]]
    return " ".join(words)

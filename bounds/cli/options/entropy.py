"""Cross-entropy on PARITY and 2DYCK against length: optimum, chance, floor, model.

Without a model the levels of the source alone, with the floors that remain where the
influence of one symbol vanishes (eps = 0). With --model its own cross-entropy, over all
prefixes up to n = 14 and over --num_inputs sampled ones beyond, and the floor that its own
eps leaves: --eps=exact takes the change of its log-odds within the pairs of the theorem,
certificate a certified bound for each pair, closed_form one for all inputs of the length.
n counts the symbols of the prefix; --reading=query appends an end token. Results are kept
in --out as they are found, and the same command continues where it stopped.
"""

import dataclasses
from typing import Any

from bounds.cli.shared.groups import Computed, Figure, Lengths, Stored
from bounds.cli.shared.options import again, option

OF_MODEL: dict[str, Any] = {
    "used_if": lambda one: one.model is not None,
    "otherwise": "says how a model is measured; name one with --model",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class EntropyOptions(Lengths, Computed, Stored, Figure):
    """Options of the command."""

    COMMAND = "entropy"
    DRAWS = lambda one: one.model is not None

    language: str = option(
        "parity",
        "Whose prefixes: {words}, or an automaton's file (docs/notation.md), of which "
        "the floor is the optimum.",
        *("parity", "dyck2"),
        file=True,
    )
    p: float = option(
        0.25,
        "Probability of ending at an even count (parity) or in an accepting state (file), "
        "or of an opening bracket.",
    )
    lengths: tuple[int, ...] = again(Lengths, "lengths", "2:1024:10")
    model: str | None = option(None, "Model file (safetensors).", file=True)
    reading: str = option(
        "last",
        "Where the model's prediction is read: at the last symbol, or at an end token "
        "after it.",
        "bounds.entropy.closed_form:READINGS",
        **OF_MODEL,
    )
    eps: str = option(
        "exact",
        "How far the model's log-odds move within a pair.",
        "bounds.entropy:CLOSENESS",
        **OF_MODEL,
    )
    num_inputs: int = option(
        256, "Sampled prefixes at each length beyond 14.", least=2, **OF_MODEL
    )
    dtype: str = again(Computed, "dtype", "float64", **OF_MODEL)

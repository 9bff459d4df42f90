"""Temperatures at which softmax provably simulates a hard-attention model.

At every length: the gap of the model's scores, the temperature of Theorem 26 (with ties,
of its extension) and that of a certificate from measured norms, each for an error of at
most --epsilon in any final activation; and the errors of the tempered softmax twins at
these, as measured. Certified over exact reals for the inputs considered: all inputs of a
length where there are at most --max_inputs or the model has one layer, else those that the
input flags name; a measured error is the largest of the inputs that were run. Models
without positions or with few symbols have tied scores, whose twins need scores exact to far
below the temperature; unique-hard heads with ties get a tie-breaking term first.
"""

import dataclasses
from typing import Any

from bounds.cli.shared.groups import (
    Figure,
    HardWeighting,
    Inputs,
    Lengths,
    Sampled,
    Stored,
)
from bounds.cli.shared.options import again, find, option


def parse_schedule(text: str) -> Any:
    """Temperature of all rows as a function of n."""
    entry = find("bounds.numbers.notation:parse_temperature")(text)
    entry = entry or {"kind": "constant", "value": 1.0}
    if entry.get("of") == "position":
        raise ValueError("an error is certified where all rows have one temperature")
    decode = find("jax_models.format.temperature:decode_temperature")
    return decode("temperature", entry, "none")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulateOptions(Lengths, HardWeighting, Sampled, Stored, Figure):
    """Options of the command."""

    COMMAND = "simulate"

    lengths: tuple[int, ...] = again(Lengths, "lengths", "4,8,16,32")
    weighting: str | None = again(
        HardWeighting, "weighting", None, " A random model's is average_hard."
    )
    language: str | None = again(
        Inputs,
        "language",
        None,
        " By default members of the preset's own language, and strings one symbol away; "
        "random strings where it has none.",
    )
    num_inputs: int = again(Sampled, "num_inputs", 16)
    at: str | None = option(
        None,
        "A temperature at which the error of softmax is certified too: T, inverse_log:A "
        "(A / ln n) or power:A:P (A n^P).",
        check=parse_schedule,
    )
    epsilon: float = option(
        0.01,
        "The largest error allowed of an entry of the final activations.",
        least=1e-300,
        most=1.0,
    )
    max_inputs: int = option(
        "bounds.simulation.compute:BUDGET",
        "All inputs of a length are listed and run where there are at most this many.",
        least=0,
        used_if=lambda one: one.tokens is None and one.text is None,
        otherwise="lists inputs, and a file of them is given; leave it out",
    )

"""Influence against length, for several weightings of one model.

Without flags: leftmost-hard, average-hard, softmax, and softmax with temperature
1 / ln n, on one random model (the same weights for all four) and sampled bit strings.
Beside the exact influence stand what --bounds names: the certificate for each input,
the corrected and the printed constants of Lemma 5 for all inputs of a length, and an
estimate of what they bound, the largest influence that a search over inputs met. The
constants, which cost no forward pass, go on beyond the lengths that are measured.
Of a text (--sequence, --text) lengths are those of its beginnings, at most its own; the
records of a --fasta file are measured at their own lengths.
A file or a construction is measured as it is, unless --weighting or --temperature ask
for others. Several of both are combined; of several temperatures the hard weightings,
whose winners no temperature changes, take the first. Results are kept in --out as they
are found, and the same command continues where it stopped.
"""

import dataclasses

from bounds.cli.shared.groups import (
    RECORDS,
    TEMPERATURE,
    WEIGHTINGS,
    Figure,
    Lengths,
    Memory,
    Method,
    Read,
    Sampled,
    Shape,
    Stored,
    Texts,
)
from bounds.cli.shared.options import again, option
from jax_models.arguments import MAX_LENGTH

# Of the random model: small enough for its constants to fall within lengths that can be
# run, and those to which its closed forms alone go on.
SCALE = 0.5
EXTEND_TO = 10**6


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveOptions(Lengths, Sampled, Texts, Read, Method, Memory, Stored, Figure):
    """Options of the command."""

    COMMAND = "curve"
    DRAWS = lambda one: Sampled.DRAWS(one) or "estimate" in one.bounds

    lengths: tuple[int, ...] = again(
        Lengths,
        "lengths",
        "16:4096:9",
        used_if=lambda one: all(getattr(one, name) is None for name in RECORDS),
        otherwise="is of beginnings of a text, and the records of --fasta and --smiles "
        "have their own lengths; leave it out, or give one record as --sequence",
    )
    weighting: tuple[str, ...] | None = option(
        None, "Weightings to compare: some of {words}.", WEIGHTINGS
    )
    temperature: tuple[str, ...] | None = option(
        None,
        "Temperatures to compare: each T, inverse_log:A (A / ln n) or "
        "power:A:P[:position] (A n^P).",
        check=TEMPERATURE,
    )
    bounds: tuple[str, ...] = option(
        "certified,closed_forms",
        "What stands beside the exact influence: some of {words}.",
        *("none", "bounds.curves.columns:CURVE_BOUNDS"),
        used_if=lambda one: "none" not in one.bounds or len(one.bounds) == 1,
        otherwise="has other bounds than none, but none stands alone",
    )
    extend_to: int | None = option(
        None,
        "Closed forms, which need no forward pass, are evaluated on beyond --lengths, at "
        f"powers of ten up to this n; by default {EXTEND_TO} for a random model, else not.",
        least=1,
        used_if=lambda one: "closed_forms" in one.bounds,
        otherwise="is of closed forms; name closed_forms among --bounds, or leave it out",
    )
    trained_to: int | None = option(
        None,
        "Longest n that the model was trained on: marked in table and figure, and lengths "
        "up to it and beyond it are fitted apart; by default what train.json beside the "
        "model says.",
        least=1,
        most=MAX_LENGTH,
        key=False,
    )
    scale: float = again(Shape, "scale", SCALE)

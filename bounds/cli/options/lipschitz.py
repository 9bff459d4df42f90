"""The empirical Lipschitz constant against length, beside the closed forms.

Every number found by search is an estimate from below, marked with its seed and its
iterations; the closed forms and certificates beside it are bounds from above. Results
are kept in --out as they are found, and the same command continues where it stopped.
"""

import dataclasses

from bounds.cli.shared.groups import Figure, Lengths, Read, Sampled, Stored, Weighted
from bounds.cli.shared.options import again, option


@dataclasses.dataclass(frozen=True, kw_only=True)
class LipschitzOptions(Lengths, Weighted, Sampled, Read, Stored, Figure):
    """Options of the command."""

    COMMAND = "lipschitz"
    DRAWS = lambda _: True

    lengths: tuple[int, ...] = again(Lengths, "lengths", "16:1024:4")
    num_inputs: int = again(Sampled, "num_inputs", 4)
    restarts: int = option(
        "bounds.lemma5.lipschitz.searches:Effort.restarts",
        "Starting points of the ascent in the ball; 0 leaves it out.",
        least=0,
    )
    steps: int = option(
        "bounds.lemma5.lipschitz.searches:Effort.steps",
        "Steps of the ascent from each.",
        least=1,
        used_if=lambda one: one.restarts > 0,
        otherwise="is of the ascent, which --restarts=0 leaves out",
    )

"""Write a model file: random weights, a construction, or another file re-weighted.

The file is `model.safetensors` in --out; `model.json` beside it holds its SHA-256 and
how it was made.
"""

import dataclasses

from bounds.cli.shared.groups import Model, Weighted
from bounds.cli.shared.options import option


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelOptions(Model, Weighted):
    """Options of the command."""

    COMMAND = "model"
    DRAWS = lambda one: one.is_drawn

    max_length: int = option(
        512,
        "Random model with --position=table: number of positions.",
        least=1,
        used_if=lambda one: one.is_drawn and one.position == "table",
        otherwise="is the size of a random model's table of positions; give "
        "--position=table too, or leave it out",
    )

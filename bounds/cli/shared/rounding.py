"""`--rounding`: the results that have radii of rounding."""

from typing import get_args

from absl import flags

from bounds.influence.method import Rounding


def define_rounding(values: flags.FlagValues) -> None:
    """Adds `--rounding`."""
    flags.DEFINE_enum(
        "rounding",
        "auto",
        get_args(Rounding),
        "Which results have a radius of rounding, by four more runs with moved inputs: all, "
        "top, a block of the largest (the others are estimated), or none; auto is all where "
        "that takes about a second of one core, and top beyond.",
        flag_values=values,
    )

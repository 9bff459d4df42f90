"""Every closed-form constant of a model: as Hahn 2020 prints them, and corrected.

One row per length and layer in `constants.json`; the last layer's speaks of the output.
All bounds hold for every input of the length and every substitution, at a position that
is not the one exchanged. They are decimal logarithms, because the constants leave the
range of floats: null stands for a bound of zero, for one beyond any float, and for a
form that does not apply; the hypotheses of the row say of each null which it is. Lengths
are kept in --out as they are done, and the same command continues where it stopped.
"""

import dataclasses

from bounds.cli.shared.groups import Lengths, Model, Read, Stored, Weighted


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConstantsOptions(Lengths, Weighted, Model, Read, Stored):
    """Options of the command."""

    COMMAND = "constants"
    DRAWS = lambda one: one.is_drawn

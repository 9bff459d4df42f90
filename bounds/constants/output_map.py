"""The last map: from the activations after layer L to what is read.

A final LayerNorm and, for logits, the read-out act on each row by itself, so whatever
bounds the change of a row is multiplied by their Lipschitz constants. They are no part
of the layers: inside the uniform constants of C1 and C2 they would count once per layer.
"""

import dataclasses
import math
from typing import TypeVar

from bounds.constants.model_constants import ModelConstants
from bounds.interval import interval, log, log_upper, upper
from bounds.result import Bound, Claim

AnyInequality = TypeVar("AnyInequality", Bound, Claim)


@dataclasses.dataclass(frozen=True)
class OutputMap:
    """A pointwise map of rows.

    Attributes:
        symbol: How its value at a row is written; braces for the prime and the row.
        gain: Its Lipschitz constant.
        cap: Bound on the distance of any two of its values; infinite where unknown.
        hypothesis: What was used of it.
    """

    symbol: str
    gain: float
    cap: float
    hypothesis: str

    def after(self, change: AnyInequality, row: str, capped: bool) -> AnyInequality:
        """An inequality about rows, as one about the values of the map.

        Args:
            change: An upper bound or claim on the change of a row.
            row: The row's name, "j" or "i".
            capped: Whether to use the cap too; what is proportional to D must not.

        Returns:
            The inequality multiplied by the gain.
        """
        value = _product(change.log_value, self.gain)
        if capped:
            value = min(value, log_upper(interval(self.cap)))
        before, moved = (self.symbol.format(prime, row) for prime in ("", "'"))
        return dataclasses.replace(
            change,
            log_value=value,
            quantity=f"|{before} - {moved}|" + (", j != i" if row == "j" else ""),
            hypotheses=(*change.hypotheses, self.hypothesis),
        )


def output_map(constants: ModelConstants, target: str) -> OutputMap | None:
    """The map from the activations after the last layer to the target.

    Args:
        constants: Of the model; with a read-out where the target is "logits".
        target: "activation" or "logits".

    Returns:
        The map; None where it is the identity.
    """
    gain, cap, said = interval(1), interval(math.inf), []
    if constants.final is not None:
        gain, cap = (
            interval(x) for x in (constants.final.lipschitz, constants.final.change_cap)
        )
        said.append("the final LayerNorm has Lipschitz constant at most max|γ|/√ε")
    if target == "logits":
        assert constants.readout_norm is not None
        norm = interval(constants.readout_norm)
        gain *= norm
        # Without a final norm, the distance of two last rows is capped before.
        cap = cap * norm if constants.final is not None else cap
        said.append("logits change by at most the norm of the read-out per unit")
    if not said:
        return None
    symbol = "logits{}_{}" if target == "logits" else "LN(y{}_{})"
    return OutputMap(symbol, upper(gain), upper(cap), "; ".join(said))


def _product(log_value: float, gain: float) -> float:
    """ln of e^log_value times the gain, rounded up."""
    if gain == 0 or log_value == -math.inf:
        return -math.inf
    if math.isinf(gain) or math.isinf(log_value):
        return math.inf
    return upper(interval(log_value) + log(interval(gain)))

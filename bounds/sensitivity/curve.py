"""Average sensitivity against length: rows, the fitted power of n, the figure."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bounds.curves.decay import (
    MIN_LENGTHS,
    DecayFit,
    describe_trend,
    exponent_interval,
    fit_decay,
    show_exponent,
)
from bounds.curves.series import points
from bounds.sensitivity.average import Sensitivity

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def as_row(found: Sensitivity) -> dict[str, Any]:
    """Row of one length; ends of the 95 % interval are None where all inputs are listed."""
    row = {**vars(found), "mean": found.mean, "n": found.length}
    ends = row.pop("interval") or (None, None)
    del row["length"], row["form"]
    return row | dict(zip(("interval_lower", "interval_upper"), ends, strict=True))


@dataclasses.dataclass(frozen=True)
class SensitivityCurve:
    """Rows of several lengths of one model, by its label."""

    label: str
    rows: Sequence[Mapping[str, Any]]

    @functools.cached_property
    def fit(self) -> DecayFit:
        """Power law of the means in the positions; of a growing mean it is negative."""
        return fit_decay(*points(self.rows, "mean", "positions"))

    @property
    def finding(self) -> str:
        """The power of n in a sentence."""
        fit = self.fit
        if fit.exponent is None:
            return (
                f"{self.label}: the average sensitivity is not 0 at {fit.lengths} lengths; "
                f"a power of n is fitted to {MIN_LENGTHS} or more."
            )
        return (
            f"{self.label}: the average sensitivity {describe_trend(fit)}; {self._power()} "
            f"over {fit.lengths} lengths of {fit.first} to {fit.last} positions n."
        )

    def plot(self) -> "Figure":
        """Figure of the means with their intervals, between the guides n and √n."""
        from bounds.figures.sensitivity import sensitivity_figure

        fitted = self.fit.exponent is not None
        label = f"{self.label}: {self._power()}" if fitted else self.label
        return sensitivity_figure(self.rows, label)

    def _power(self) -> str:
        """Fitted power of n with its interval, for a reader."""
        ends = exponent_interval(self.fit)
        assert ends is not None
        assert self.fit.exponent is not None
        low, power, high = map(show_exponent, (-ends[1], -self.fit.exponent, -ends[0]))
        return f"fitted power of n {power} (95% interval {low} to {high})"

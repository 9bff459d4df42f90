"""Values of a scan's target for the unchanged input, and their rounding radii.

A scan is a table of changes of a target (numbers read from the model's output at
watched rows) by substitutions of the input's symbols, or of reductions of these
changes; a cell is one of its numbers. Radii are bounds on rounding, from runs with
slightly moved inputs.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bounds.influence.methods.bucket import padded_request
from bounds.influence.methods.exhaustive import base_outputs
from bounds.influence.methods.function_blocks import function_base
from bounds.influence.moved import radii_of, requests
from bounds.influence.request import InfluenceRequest
from bounds.influence.table.layout import choose
from bounds.influence.targets.change import value_of
from bounds.rounding.moved_inputs import RUNS
from bounds.rounding.radii import farthest
from jax_models import Transformer


@dataclasses.dataclass(frozen=True)
class Base:
    """Target values of a scan's unchanged input, on the axes of the scan's table."""

    request: InfluenceRequest

    def __call__(self) -> Float[np.ndarray, "*axes"] | None:
        """Target's base values; None unless each cell is a signed change of one."""
        layout = self.request.layout
        assert layout is not None
        reduction = layout.reduction
        if not (reduction.by_cell and (reduction.by_target or layout.width == 1)):
            return None
        found = _watched_values(self.request)
        return None if found is None else self._on_axes(found[0])

    def radii(self) -> Float[np.ndarray, "*axes"]:
        """Rounding radii of the base values; NaN if the model is a bare function."""
        runs = RUNS if isinstance(self.request.model, Transformer) else 0
        found = [_watched_values(one) for one in requests(self.request, runs)]
        (values, largest), *again = [one for one in found if one is not None]
        if not again:
            return self._on_axes(np.full(values.shape, np.nan))
        moves = farthest(values.shape, (np.abs(x - values) for x, _ in again))
        asked = self.request, values, moves, largest
        return self._on_axes(radii_of(*asked, subtracted=True))

    def _on_axes(
        self, numbers: Float[np.ndarray, "watched classes"]
    ) -> Float[np.ndarray, "*axes"]:
        layout = self.request.layout
        assert layout is not None
        # An axis that the base does not have is of length 1.
        laid = numbers[None, None]  # position, symbol, row, target
        if self.request.own:
            laid = numbers[layout.positions][:, None, None]
        if not layout.reduction.by_target:
            laid = laid[..., 0]
        return layout.trim(laid, layout.made_axes)[0]


def _watched_values(
    request: InfluenceRequest,
) -> tuple[Float[np.ndarray, "watched classes"], float] | None:
    """Target's values at watched rows, and their largest magnitude; None without."""
    if not isinstance(request.model, Transformer):
        values = function_base(request).outputs
        return choose(values, request.chosen), float(np.abs(values).max())
    asked = padded_request(request)
    given = asked.model, asked.target_value, jnp.asarray(asked.tokens)
    rows, run = jnp.asarray(asked.rows), asked.moved_run
    outputs, largest, _ = base_outputs(*given, rows, run)
    values = value_of(asked.target_value, outputs)
    if values is None:
        return None
    values = np.asarray(values, np.float64)[: request.rows.size]
    return choose(values, request.chosen), float(largest)

"""Simulations against length: a table with one row per n, and its figure."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bounds.curves.inputs import InputSource, check_lengths, open_inputs
from bounds.simulation.compute import BUDGET, simulate
from bounds.store.output import write_csv
from bounds.store.table import Rows, Table
from jax_models import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The columns of the CSV file, in order.
COLUMNS = (
    "n",
    "gap",
    "tau_formula",
    "tau_certificate",
    "epsilon",
    "error_formula",
    "error_certificate",
    "ties",
    "bound_certificate",
    "theorem",
    "log10_tau_formula",
    "gap_simulated",
    "ties_simulated",
    "tied_spread",
    "score_rounding",
    "exact_scores",
    "inputs",
    "all_inputs",
    "inputs_run",
    "measured_on",
    "heads",
    "tau_at",
    "bound_at",
)


@dataclasses.dataclass(frozen=True)
class SimulationCurve(Rows):
    """Temperatures and errors against n, for one hard model.

    Attributes:
        table: Rows as `Simulation.row` gives them, one per n.
    """

    table: Table

    def _rows(self) -> tuple[Mapping[str, Any], ...]:
        return self.table.rows

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as CSV, without the sweeps of the figure."""
        write_csv(path, COLUMNS, self.table)

    def plot(self) -> "Figure":
        """Draw error against temperature with the bounds; a Matplotlib figure."""
        from bounds.figures.tables import simulation_figure

        return simulation_figure(self.table)


def simulation_curve(
    model: Transformer,
    lengths: Sequence[int],
    *,
    epsilon: float = 0.01,
    inputs: str | InputSource = "random",
    num_inputs: int = 16,
    seed: int = 0,
    budget: int = BUDGET,
) -> SimulationCurve:
    """Simulate a hard model by softmax at each of several lengths.

    Args:
        model: A hard model, as `simulate` takes it.
        lengths: Increasing lengths n >= 1.
        epsilon: ε in (0, 1].
        inputs: A language to sample from, or a source of inputs.
        num_inputs: Number of sampled inputs.
        seed: Seed of the sampled inputs.
        budget: The most inputs of a length that are enumerated.

    Returns:
        A table with one row per n.

    Raises:
        InputError: The lengths do not increase, or as in `simulate`.
    """
    lengths = check_lengths(lengths)
    source = open_inputs(model, inputs, num_inputs, seed)
    rows = [
        simulate(
            model, n, epsilon=epsilon, inputs=source, budget=budget, sweep=True
        ).row()
        for n in lengths
    ]
    return SimulationCurve(Table(tuple(rows)))

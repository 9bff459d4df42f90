"""Results of simulations: a hard model, its softmax twin, bounds on their distance.

A hard model has hard attention alone; its twin has softmax at a temperature instead. A
measure holds the numbers of the hard model that bound their distance, over the inputs
considered; a head is uniform if it averages and its scores do not depend on the key.
A report is a table of results by length, with notes, sentences that state conditions
and warnings for the numbers of a row.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bounds.numbers.bound import Bound
from bounds.numbers.notation import column_table, parse_temperature, ruled
from bounds.simulation.certificate import HardMeasure, certified_error
from bounds.simulation.paper_shape import ties_are_equal
from jax_models import ConstantTemperature, InputError, Transformer
from jax_models.arguments import BriefRepr, expect_number
from jax_models.format.pieces import decode_temperature
from jax_models.model.attention import Schedule
from jax_models.model.reweight import with_temperature, with_weighting
from jax_models.model.transformer import forward, reduce_reports
from jax_models.run.evaluate import check_ties
from jax_models.weighting import TieReport

# Header and key of the report's columns.
SHOWN = (
    *(("n", "n"), ("inputs", "inputs"), ("all", "all_inputs"), ("ties", "ties")),
    *(("gap", "gap"), ("theorem", "theorem"), ("tau, theorem", "tau_formula")),
    *(("tau, certificate", "tau_certificate"), ("error there", "error_certificate")),
    *(("certified", "bound_certificate"), ("error is the largest of", "measured_on")),
    *(("tau, --at", "tau_at"), ("certified there", "bound_at")),
)
# Above this share of the temperature the rounding of scores shows in a float run: it
# moves weights among tied scores by as much.
TRUSTED_ROUNDING = 1e-3
Inputs: TypeAlias = Int[Array, "inputs tokens"]
Activations: TypeAlias = Float[Array, "inputs tokens width"]
MOST = 2**53  # a larger number of inputs is no integer of JSON


def tempered_twin(
    model: Transformer, temperature: float | Float[Array, ""]
) -> Transformer:
    """Returns the model with softmax at a temperature in place of hard attention."""
    # The hard model's own temperatures, which change no maximum, are replaced.
    soft = with_weighting(model, "softmax")
    return with_temperature(soft, ConstantTemperature(temperature))


def measured_errors(
    model: Transformer,
    tokens: Int[np.ndarray, "inputs tokens"],
    temperatures: Sequence[float],
) -> Float[np.ndarray, "temperatures"]:
    """Largest difference of the twin's final activations from the model's, by temperature."""
    # Rounding is not removed: at a temperature below the rounding of tied scores the
    # twin tells them apart, which over exact reals it does not.
    inputs = jnp.asarray(tokens, jnp.int32)
    hard, reports = final_activations(model, inputs)
    met = (None if one is None else reduce_reports(one) for one in reports)
    check_ties(model, tuple(met), "error")
    dtype = model.dtype
    # Temperatures are arrays: all twins run one compiled program.
    twins = (tempered_twin(model, jnp.asarray(tau, dtype)) for tau in temperatures)
    return np.array([float(_largest_difference(twin, inputs, hard)) for twin in twins])


@jax.jit
def final_activations(
    model: Transformer, inputs: Inputs
) -> tuple[Activations, tuple[TieReport | None, ...]]:
    """Returns the final activations of many inputs, and their tie reports."""
    # One input at a time: memory is that of one pass.
    return jax.lax.map(lambda tokens: forward(model, tokens), inputs)


@jax.jit
def _largest_difference(
    model: Transformer, inputs: Inputs, hard: Activations
) -> Float[Array, ""]:
    # One input at a time, as in `final_activations`.
    apart = lambda one: jnp.abs(forward(model, one[0])[0] - one[1]).max()
    return jax.lax.map(apart, (inputs, hard)).max()


def parse_schedule(text: str) -> Schedule:
    """Temperature schedule of a text; `ValueError` if rows differ in temperature."""
    entry = parse_temperature(text) or {"kind": "constant", "value": 1.0}
    if entry.get("of") == "position":
        raise ValueError("an error is certified where all rows have one temperature")
    found = decode_temperature("temperature", entry)
    assert found is not None
    return found


@dataclasses.dataclass(frozen=True, repr=False)
class Simulation(BriefRepr):
    """Simulation of a hard model by softmax at a temperature, at one length.

    *Certified*, over exact reals and for the inputs considered: `gap` (from
    below), and that no entry of the twin's final activations is off by more than
    `epsilon` at a temperature of `theorem` (which takes tied scores as equal; `notes` say
    where that is not known) or `bound` at `temperature`. *Measured*, in the model's float
    type: the errors.

    Attributes:
        given: The hard model that was given.
        model: The hard model that is simulated: the given one, with tie-breaking terms
            where unique-hard heads met ties.
        measured_given: Measure of the given model.
        measured: Measure of the simulated model.
        all_inputs: Whether all inputs of the length were considered.
        num_run: Number of inputs on which errors were measured.
        measured_on: These inputs in words; a measured error is the largest over them.
        epsilon: ε, the error allowed.
        theorem: "26" or "26-T"; None where neither applies.
        theorem_temperature: A lower bound on the largest temperature, by the theorem.
        temperature: Certified temperature; None where there is none.
        bound: Certified error at `temperature`, at most ε.
        error_formula: Error measured at the theorem's temperature; None where there is
            none, or it is below every float.
        error_certificate: Error measured at the certificate's temperature.
        temperatures: Temperatures of a sweep around `temperature`, increasing.
        errors: Errors measured at `temperatures`.
        bounds: Certified errors at `temperatures`.
    """

    given: Transformer
    model: Transformer
    measured_given: HardMeasure
    measured: HardMeasure
    all_inputs: bool
    num_run: int
    measured_on: str
    epsilon: float
    theorem: str | None
    theorem_temperature: Bound | None
    temperature: float | None
    bound: float | None
    error_formula: float | None
    error_certificate: float | None
    temperatures: Float[np.ndarray, "temperatures"]
    errors: Float[np.ndarray, "temperatures"]
    bounds: Float[np.ndarray, "temperatures"]

    @property
    def length(self) -> int:
        """Length n of the inputs."""
        return self.measured.length

    @property
    def gap(self) -> float:
        """Least gap γ(n) of the given model's best scores to the next, or infinite."""
        return self.measured_given.gap

    @property
    def ties(self) -> int:
        """Number of rows with ties in non-uniform heads of the given model; all inputs."""
        # Where inputs were not listed these are pairs of a position and a symbol.
        return self.measured_given.tied_rows

    def twin(self, temperature: float | None = None) -> Transformer:
        """Returns the simulated model with softmax, the certified twin by default."""
        tau = self.temperature if temperature is None else temperature
        if tau is None:
            raise InputError(
                f"no temperature is certified for an error of {self.epsilon:g} at "
                f"n = {self.length}; name one, or allow a larger error"
            )
        return tempered_twin(self.model, tau)

    def certify(self, temperature: float) -> float:
        """Returns an upper bound on the twin's error at a temperature, for these inputs."""
        tau = expect_number("temperature", temperature, 0, above=True)
        return certified_error(self.measured, tau)

    @property
    def notes(self) -> tuple[str, ...]:
        """Conditions and warnings for the numbers of the table row, one sentence each."""
        measured, all_inputs = self.measured, self.all_inputs
        spread = f"{measured.spread:.2g}"
        # Where heads average over ties a run in floats has an error of its own of about
        # the rounding of scores over the temperature.
        rounding = measured.score_error / (self.temperature or math.inf)
        is_rounded = measured.tied_rows and rounding > TRUSTED_ROUNDING
        notes = {
            f"certified for {self.measured_on}, not for all inputs of this length": (
                not all_inputs
            ),
            "certified for all inputs; measured errors are the largest of "
            f"{self.measured_on}": all_inputs and self.num_run < measured.num_inputs,
            "unique-hard heads met ties: a tie-breaking term was added (one coordinate "
            "j/n more), and the twin is that of the model with it": (
                self.model is not self.given
            ),
            f"tied scores are known to be equal within {spread} only: the certificate "
            "allows for it, Theorem 26-T takes them as equal": (
                self.theorem == "26-T" and measured.spread > 0
            ),
            f"scores that count as tied are up to {spread} apart: Theorem 26-T does not "
            "apply": not ties_are_equal(measured),
            "no temperature is certified for this error": self.temperature is None,
            f"computed scores may be rounded by {rounding:.2g} of the temperature: tied "
            "heads of the measured twin are off by as much": is_rounded,
        }
        return tuple(note for note, holds in notes.items() if holds)

    def row(self, at: Schedule | None = None) -> dict[str, Any]:
        """Returns a table row, with the certified error at temperature `at`, if any."""
        formula = self.theorem_temperature
        count = self.measured.num_inputs
        tau = None if at is None else float(at(self.length, None, self.model.dtype))
        named = {} if tau is None else {"tau_at": tau, "bound_at": self.certify(tau)}
        return {
            "n": self.length,
            "gap": self.gap if math.isfinite(self.gap) else None,
            "tau_formula": None if formula is None else formula.value,
            "tau_certificate": self.temperature,
            "epsilon": self.epsilon,
            "error_formula": self.error_formula,
            "error_certificate": self.error_certificate,
            "ties": self.ties,
            "bound_certificate": self.bound,
            "theorem": self.theorem,
            "log10_tau_formula": None if formula is None else formula.log10_value,
            # Inputs of a one-layer model are counted, not listed: there may be V^n.
            "inputs": count if count < MOST else None,
            "all_inputs": self.all_inputs,
            "measured_on": self.measured_on.partition(" (")[0],
            "heads": ";".join(",".join(layer) for layer in self.measured_given.kinds),
            "temperatures": self.temperatures.tolist(),
            "errors": self.errors.tolist(),
            "bounds": self.bounds.tolist(),
            "notes": list(self.notes),
            **named,
        }


def simulation_report(rows: Sequence[Mapping[str, Any]]) -> str:
    """Table of temperatures and errors by length, and each note with its lengths."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        for note in row["notes"]:
            notes.setdefault(note, []).append(str(row["n"]))
    title = (
        "Softmax at a temperature in place of hard attention, by length n (tokens): "
        "certified over\nexact reals for the inputs considered; the error was measured."
    )
    table = ruled(column_table(rows, SHOWN, ".3g"))
    lines = (f"n = {', '.join(lengths)}: {note}" for note, lengths in notes.items())
    return "\n".join(["", title, *table, *lines, ""])

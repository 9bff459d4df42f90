"""Simulations: measure the hard model, find temperatures, run the twins, length by length.

The twin of a hard-attention model has softmax at a temperature in its place; a measure
holds the gaps and ties of the hard model's scores over some inputs; a unique-hard head
chooses one of several equal scores, the leftmost or the rightmost.

A leftmost- or rightmost-hard head whose scores have a gap γ chooses the same position once ∓γ
j/n is added to the score of position j = 1 … n (Lemma 8 b, c): no two scores are equal then,
and the gap is at least γ/n. Every output of the hard model stays as it was.
"""

import dataclasses
import itertools
import math
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int
from numpy.typing import ArrayLike

from bounds.all_inputs.universe import AllInputs, list_inputs
from bounds.curves.inputs import GivenInputs, InputSource, check_lengths, open_inputs
from bounds.simulation.certificate import (
    HardMeasure,
    LayerMeasure,
    certified_error,
    certified_temperature,
)
from bounds.simulation.measure import measure_hard_model, measure_structure
from bounds.simulation.paper_shape import (
    check_simulable,
    read_heads,
    theorem_temperature,
)
from bounds.simulation.result import Simulation, measured_errors
from bounds.store.output import write_csv
from bounds.store.table import Table
from jax_models import InputError, PositionTable, Transformer
from jax_models.arguments import expect_integer, expect_number, expect_strings
from jax_models.model.attention import Attention
from jax_models.model.transformer import encode_positions
from jax_models.run.device_memory import require_memory
from jax_models.run.evaluate import check_tokens, linear_readout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

BUDGET = 1024
# The sweep of a figure, in factors of the certificate's temperature: four below it, and
# up to where softmax is far from hard.
SWEEP = 2.0 ** np.arange(-4, 11)


def needs_tie_breaking(measure: HardMeasure) -> bool:
    """Whether a unique-hard head of the measured model has a row with two or more maxima."""
    return any(head.tied_rows and not head.averages for head in measure.heads)


def break_ties(model: Transformer, measure: HardMeasure) -> Transformer:
    """Returns the model at one length with tie-breaking terms in its unique-hard heads."""
    # As weights: the activations get one coordinate more, which holds j/n and which no layer
    # changes; keys get one component more, which reads it; queries get a bias there, ∓γ. The
    # position encoding is then a table for this length.
    length, dtype = measure.length, model.dtype
    table = np.asarray(encode_positions(model, length), np.float64)
    place = np.arange(1, length + 1)[:, None] / length
    axes = {"query": 2, "key": 2, "value": 2, "output": 0, "output_bias": 0}
    layers = []
    for layer, one in zip(model.layers, measure.layers, strict=True):
        attention = _widened(layer.attention.ungrouped, **axes)
        if not all(head.averages for head in one.heads):
            attention = _with_term(attention, one, length)
        block = _widened(layer.feed_forward, w1=1, w2=0, b2=0)
        parts = {"attention": attention, "feed_forward": block}
        layers.append(dataclasses.replace(layer, **parts))
    readout = model.readout and _widened(linear_readout(model), weight=1)
    return dataclasses.replace(
        _widened(model, embedding=1),
        position=PositionTable(jnp.asarray(np.hstack([table, place]), dtype)),
        layers=tuple(layers),
        readout=readout,
    )


def _widened(part: T, **axes: int) -> T:
    """Copy of a part of a model, with a zero appended to arrays named, along their axes."""
    some: Any = part  # a frozen dataclass
    wide = {}
    for name, axis in axes.items():
        weight = getattr(part, name)
        if weight is not None:  # a bias
            pads = [(0, int(axis == k)) for k in range(weight.ndim)]
            wide[name] = jnp.pad(weight, pads)
    return dataclasses.replace(some, **wide)


def _with_term(attention: Attention, measure: LayerMeasure, length: int) -> Attention:
    """Copy of `attention` with one more key component, which adds the tie-breaking term."""
    weighting: Any = attention.weighting  # a frozen dataclass
    for head in measure.heads:
        step = _coefficient(head.gap) / length
        # Tied scores may differ by rounding, but by less than half a step of the term.
        if head.spread >= step / 2:
            raise InputError(
                f"scores that count as tied differ by up to {head.spread:.3g}, and the "
                f"tie-breaking term has steps of {step:.3g} at n = {length}; expected "
                "less than half a step: use float64, a shorter length, or scores that "
                "are exact"
            )
    sign = -float(weighting.side)
    gaps = np.array([_coefficient(head.gap) for head in measure.heads])
    dtype = attention.query.dtype
    heads, key_width = len(gaps), attention.key_width
    divisor = read_heads(attention)[0].divisor
    # A dot product with one component more has another d_k: the divisor is put into queries.
    query, bias = attention.query / divisor, attention.query_bias
    bias = jnp.zeros((heads, key_width), dtype) if bias is None else bias / divisor
    term = jnp.asarray(sign * gaps[:, None], dtype)
    place = jnp.zeros((heads, 1, attention.key.shape[2]), dtype).at[:, :, -1].set(1)
    resolution = weighting.resolution(dtype)
    # Cells of a quarter of the new gap are never neighbours; narrower ones stay.
    narrow = _coefficient(float(gaps.min()) / length) / 4
    cells = dataclasses.replace(weighting, tie_resolution=min(resolution, narrow))
    return dataclasses.replace(
        # The key's new component reads j/n alone.
        _widened(attention, key_bias=1),
        query=jnp.pad(query, [(0, 0), (0, 1), (0, 0)]),
        query_bias=jnp.concatenate([bias, term], axis=1),
        key=jnp.concatenate([attention.key, place], axis=1),
        score="dot_product",
        temperature=None,
        weighting=cells,
    )


def _coefficient(gap: float) -> float:
    """Coefficient of a tie-breaking term: largest power of 2 <= gap; 1 if infinite."""
    # A power of two times j/n rounds nothing; at most the gap, it overturns no score.
    return 2.0 ** np.floor(np.log2(gap)) if np.isfinite(gap) else 1.0


@dataclasses.dataclass(frozen=True)
class Considered:
    """Inputs of one length that a simulation is certified for, and those it runs on."""

    tokens: Int[np.ndarray, "inputs tokens"]  # the inputs to run
    words: str  # number, kind and source of the tokens
    # Whether all inputs of the length are considered: every substitutable symbol at every
    # position, the last one included.
    all_inputs: bool
    # All inputs of the length, where only some are run and the model's structure decides
    # about the others; else None.
    unlisted: AllInputs | None = None

    def measure(self, model: Transformer) -> HardMeasure:
        """Returns the measure of a hard model over these inputs."""
        if self.unlisted is not None:
            return measure_structure(model, self.unlisted)
        return measure_hard_model(model, self.tokens)


def consider(
    model: Transformer, length: int, source: InputSource, budget: int
) -> Considered:
    """Returns inputs to run: all of a length if at most `budget`, else those of `source`."""
    inputs = list_inputs(model, length, -1, "activation")
    # Given inputs are always taken alone.
    if isinstance(source, GivenInputs) or inputs.num_inputs > budget:
        drawn = [source.draw(length, index) for index in range(source.count)]
        # Without repetitions: a measure over inputs is a maximum.
        tokens = np.unique(np.stack(drawn), axis=0)
        # Rows of the first layer depend on one symbol each, those of others on inputs.
        known = len(model.layers) == 1 and not isinstance(source, GivenInputs)
        kind = "given" if isinstance(source, GivenInputs) else "sampled"
        words = f"{len(tokens)} {kind} input{'s' * (len(tokens) > 1)} ({source.name})"
        return Considered(tokens, words, known, inputs if known else None)
    require_memory(
        f"{inputs.num_inputs} inputs of length {length}, all there are",
        inputs.num_inputs * (8 * length + 56),  # a Python tuple each
    )
    alphabets = [inputs.symbols] * (length - 1) + [inputs.query_symbols]
    every = np.array(list(itertools.product(*alphabets)), np.int32)
    return Considered(every.reshape(-1, length), f"all {len(every)} inputs", True)


def simulate(
    model: Transformer,
    length: int | ArrayLike,
    *,
    epsilon: float = 0.01,
    inputs: str | InputSource = "random",
    num_inputs: int = 16,
    seed: int = 0,
    budget: int = BUDGET,
    sweep: bool = False,
) -> Simulation:
    """Find temperatures at which softmax simulates a hard model, and measure the error.

    The model is measured over all inputs of the length, if there are at most `budget` or
    it has one layer, and else over the inputs of a source; these are also run. Unique-hard
    heads that meet ties get the tie-breaking term of Lemma 8 first.

    Args:
        model: A transformer of average-, leftmost- or rightmost-hard layers, residual
            and without layer norm, with dot-product scores.
        length: n >= 1; or tokens [n] or [K, n], the only inputs considered.
        epsilon: ε in (0, 1], the largest error of an entry of the final activations.
        inputs: A language to sample from, or a source; given inputs are taken alone.
        num_inputs: Number of sampled inputs.
        seed: Seed of the sampled inputs.
        budget: The most inputs that are enumerated.
        sweep: Whether to run twins at further temperatures, for a figure.

    Returns:
        The certified temperatures and the measured errors.

    Raises:
        InputError: The model is refused, ε is not in (0, 1], the length does not fit, or
            tied scores are too far apart for the tie-breaking term.
        TieError: Rounding decides a hard winner.

    Source:
        Yang, Strobl, Chiang and Angluin 2026, Theorem 26;
        docs/theory/softmax-approximation.md, sections 9 and 10.
    """
    model = check_simulable(model)
    if expect_number("epsilon", epsilon, 0, above=True) > 1:
        raise InputError(f"epsilon is {epsilon}; expected an error in (0, 1]")
    expect_integer("budget", budget, 0)
    n: Any = length
    if getattr(n, "ndim", isinstance(n, list | tuple)):
        rows = np.atleast_2d(expect_strings("tokens", n))
        n = rows.shape[1]
        checked = (np.asarray(check_tokens(model.vocab_size, row)) for row in rows)
        inputs = GivenInputs("tokens", tuple(checked))
    source = open_inputs(model, inputs, num_inputs, seed)
    considered = consider(model, n, source, budget)
    given = considered.measure(model)
    simulated, measure = model, given
    if needs_tie_breaking(given):
        simulated = break_ties(model, given)
        # The term changes gaps and ties: certificates need those of the model that is
        # simulated.
        measure = considered.measure(simulated)
    theorem, formula = theorem_temperature(simulated, measure, epsilon) or (None, None)
    certified, bound = certified_temperature(measure, epsilon) or (None, None)
    # Around a certified temperature, or where none is around a share of the gap.
    gap = measure.gap / 64 if math.isfinite(measure.gap) else 1.0
    taus = SWEEP * (certified or gap) if sweep else np.zeros(0)
    by_formula = 0.0 if formula is None else formula.value
    # A temperature below every normal float of the model cannot be run.
    least = float(np.finfo(model.dtype).tiny)
    wanted = [tau for tau in (by_formula, certified or 0.0) if tau >= least]
    errors = measured_errors(simulated, considered.tokens, [*wanted, *taus.tolist()])
    known = dict(zip(wanted, errors.tolist(), strict=False))
    return Simulation(
        given=model,
        model=simulated,
        measured_given=given,
        measured=measure,
        all_inputs=considered.all_inputs,
        num_run=len(considered.tokens),
        measured_on=considered.words,
        epsilon=epsilon,
        theorem=theorem,
        theorem_temperature=formula,
        temperature=certified,
        bound=bound,
        error_formula=known.get(by_formula),
        error_certificate=None if certified is None else known.get(certified),
        temperatures=taus,
        errors=errors[len(wanted) :],
        bounds=np.array([certified_error(measure, tau) for tau in taus]),
    )


# The columns of the CSV file, in order.
COLUMNS = tuple(
    "n gap tau_formula tau_certificate epsilon error_formula error_certificate ties "
    "bound_certificate theorem log10_tau_formula inputs all_inputs measured_on heads "
    "tau_at bound_at".split()
)


class SimulationCurve(Table):
    """Temperatures and errors of softmax for one hard model, against the length n.

    Attributes:
        rows: Rows as `Simulation.row` gives them, one per n.
    """

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows as CSV, without the series of temperatures that `plot` draws."""
        write_csv(path, COLUMNS, self)

    def record(self) -> dict[str, Any]:
        """The rows for a JSON file, with words on certified and measured columns."""
        return {
            "certified": "gap, the error at tau_formula (by theorem, which takes tied scores "
            "as equal: see notes), bound_certificate and bound_at, over exact reals, for "
            "the inputs considered",
            "measured": "error_formula, error_certificate, errors",
            "rows": self.rows,
        }

    def plot(self) -> "Figure":
        """Draw error against temperature with the bounds; a Matplotlib figure."""
        from bounds.figures.curves import simulation_figure

        return simulation_figure(self)


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
        epsilon: ε in (0, 1], the largest error of an entry of the final activations.
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
    asked: Any = {"epsilon": epsilon, "inputs": source, "budget": budget}
    rows = (simulate(model, n, sweep=True, **asked).row() for n in lengths)
    return SimulationCurve(tuple(rows))

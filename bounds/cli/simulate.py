"""Temperatures at which softmax provably simulates a hard-attention model.

At every length: the gap of the model's scores, the temperature of Theorem 26 (with ties,
of its extension) and that of a certificate from measured norms, each for an error of at
most --epsilon in any final activation; and the errors of the tempered softmax twins at
these, as measured. Certified over exact reals for the inputs considered: all inputs of a
length where there are at most --budget or the model has one layer, else those that the
input flags name; errors are measured on these. Models
without positions or with few symbols have tied scores, whose twins need scores exact to
far below the temperature; unique-hard heads with ties get a tie-breaking term first.
"""

from pathlib import Path
from typing import Any

from absl import flags

import jax_models as jm
from bounds.cli import flags as shared
from bounds.cli.input_source import load_inputs, num_symbols
from bounds.cli.length_sweep import raise_failed, run_lengths
from bounds.cli.model_source import is_random, load_model, model_sha256, reweighted
from bounds.cli.platforms import define_platform, prepare_jax
from bounds.cli.record import run_record
from bounds.cli.simulate_report import simulation_report
from bounds.figures import save_figure
from bounds.inputs import GivenInputs, InputSource
from bounds.measurement import tokens_sha256, weighting_label
from bounds.output import write_json
from bounds.simulation.compute import BUDGET, simulate
from bounds.simulation.curve import SimulationCurve
from bounds.simulation.paper_shape import check_simulable
from bounds.sweep import Cell, Failure, Results, finish_cells, found_rows
from bounds.table import Table
from bounds.version import __version__
from jax_models.transformer import encode_positions

RANDOM_WEIGHTING = "average_hard"


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    shared.define_lengths(values, "4,8,16,32")
    shared.define_model(values)
    shared.define_weighting(values)
    shared.define_inputs(values, default_count=16)
    flags.DEFINE_float(
        "epsilon",
        0.01,
        "The largest error allowed of an entry of the final activations.",
        lower_bound=1e-300,
        upper_bound=1.0,
        flag_values=values,
    )
    flags.DEFINE_integer(
        "budget",
        BUDGET,
        "All inputs of a length are listed and run where there are at most this many.",
        lower_bound=0,
        flag_values=values,
    )
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "simulate")
    shared.define_store(values)
    shared.define_figure(values)
    return values


def run(options: flags.FlagValues) -> None:
    """Simulate at the lengths that the store does not hold yet, and report from it."""
    lengths = options.lengths
    model, model_hash, cells = _ask(options)
    opening = (
        f"simulate: {len(lengths)} lengths, n = {lengths[0]} to {lengths[-1]}, "
        f"error at most {options.epsilon:g}"
    )
    rows, failures = run_lengths(options, cells, opening, "simulate")
    curve = SimulationCurve(Table(tuple(rows)))
    if rows:
        names = _write(options, model, model_hash, curve, failures)
        print(simulation_report(curve))
        print(f"\nWritten to {options.out}: {', '.join(names)}")
    raise_failed(failures, len(cells), "lengths")


def measure_rows(options: flags.FlagValues, store: Results) -> list[dict[str, Any]]:
    """Returns a row per length, without a word or a file.

    Args:
        options: The command's flags.
        store: Where what is found is kept.

    Returns:
        The rows of `simulate.csv`, each with weighting and the model's hash.

    Raises:
        InputError: The flags do not fit together, or a length is refused.
    """
    model, model_hash, cells = _ask(options)
    finish_cells(store, cells)
    named = {"weighting": weighting_label(model), "model_sha256": model_hash}
    return [{**row, **named} for row in found_rows(store, cells)]


def _ask(options: flags.FlagValues) -> tuple[jm.Transformer, str, list[Cell]]:
    """Returns the model, its hash, and the lengths to simulate."""
    lengths = options.lengths
    prepare_jax(options)
    model = load_model(options, vocab_size=num_symbols(options), max_length=lengths[-1])
    weighting = options.weighting or (RANDOM_WEIGHTING if is_random(options) else None)
    model = reweighted(model, weighting, options.temperature)
    check_simulable(model)
    encode_positions(model, lengths[-1])  # refuses a length beyond a position table
    source = load_inputs(options, model, options.num_inputs)
    model_hash = model_sha256(options, model)
    return model, model_hash, _cells(options, model, model_hash, source)


def _cells(
    options: flags.FlagValues,
    model: jm.Transformer,
    model_hash: str,
    source: InputSource,
) -> list[Cell]:
    """Returns the lengths to simulate."""
    cells = []
    for n in options.lengths:
        inputs = [source.draw(n, index) for index in range(source.count)]
        config = {
            "command": "simulate",
            "version": __version__,
            "weighting": weighting_label(model),
            "n": n,
            "epsilon": options.epsilon,
            "budget": None if isinstance(source, GivenInputs) else options.budget,
            "model_sha256": model_hash,
            "tokens_sha256": [tokens_sha256(tokens) for tokens in inputs],
            "dtype": options.dtype,
        }

        def compute(n=n) -> dict[str, Any]:
            found = simulate(
                model,
                n,
                epsilon=options.epsilon,
                inputs=source,
                budget=options.budget,
                sweep=True,
            )
            return found.row()

        cells.append(Cell(config, f"n = {n}", compute))
    return cells


def _write(
    options: flags.FlagValues,
    model: jm.Transformer,
    model_hash: str,
    curve: SimulationCurve,
    failures: list[Failure],
) -> list[str]:
    """Write the CSV, JSON and figure files; return their names."""
    out = Path(options.out)
    curve.to_csv(out / "simulate.csv")
    record = run_record("simulate", options)
    record |= {
        "certified": "gap, gap_simulated, the error at tau_formula (by theorem, which "
        "takes tied scores as equal: see notes) and bound_certificate, over exact reals, "
        "for the inputs considered",
        "measured": "error_formula, error_certificate, errors",
        "weighting": weighting_label(model),
        "model_sha256": model_hash,
        "rows": list(curve),
        "failures": [vars(failure) for failure in failures],
    }
    write_json(out / "simulate.json", record)
    figures = save_figure(curve.plot(), out / "simulate", options.figure_format)
    return ["simulate.csv", "simulate.json", *(path.name for path in figures)]

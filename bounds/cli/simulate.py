"""Temperatures at which softmax provably simulates a hard-attention model.

At every length: the gap of the model's scores, the temperature of Theorem 26 (with ties,
of its extension) and that of a certificate from measured norms, each for an error of at
most --epsilon in any final activation; and the errors of the tempered softmax twins at
these, as measured. Certified over exact reals for the inputs considered: all inputs of a
length where there are at most --max_inputs or the model has one layer, else those that the
input flags name; a measured error is the largest of the inputs that were run. Models
without positions or with few symbols have tied scores, whose twins need scores exact to far
below the temperature; unique-hard heads with ties get a tie-breaking term first.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

import jax_models as jm
from bounds.cli.shared import flags as shared
from bounds.cli.shared.columns import FILES
from bounds.cli.shared.input_source import num_symbols
from bounds.cli.shared.length_sweep import describe_lengths, raise_failed, run_lengths
from bounds.cli.shared.model_source import weighted_model
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.record import Output
from bounds.cli.shared.report import aligned
from bounds.cli.shared.subject import read_subject
from bounds.cli.shared.validators import validate_grammar
from bounds.cli.shared.values import define_count, define_number
from bounds.curves.inputs import GivenInputs
from bounds.curves.measurement import Subject
from bounds.numbers.notation import parse_temperature
from bounds.simulation.compute import BUDGET, simulate
from bounds.simulation.curve import SimulationCurve
from bounds.simulation.paper_shape import check_simulable
from bounds.simulation.result import Simulation
from bounds.store.forms import SIZE, each, fields, only
from bounds.store.output import write_json
from bounds.store.sweep import Cell, Failure, Results, finish_cells, found_rows
from bounds.store.table import Table
from bounds.version import __version__
from jax_models.format.temperature import decode_temperature

# Header and key of the columns.
SHOWN = (
    ("n", "n"),
    ("inputs", "inputs"),
    ("all", "all_inputs"),
    ("ties", "ties"),
    ("gap", "gap"),
    ("theorem", "theorem"),
    ("tau, theorem", "tau_formula"),
    ("tau, certificate", "tau_certificate"),
    ("error there", "error_certificate"),
    ("certified", "bound_certificate"),
    ("error is the largest of", "measured_on"),
    ("tau, --at", "tau_at"),
    ("certified there", "bound_at"),
)
RANDOM_WEIGHTING = "average_hard"
SWEPT = "temperatures errors bounds"
_AT = ("tau_at", "bound_at")
FORM = fields(
    *(f"{name}?" if name in _AT else name for name in FILES["simulate.csv"]),
    "notes",
    **each("gap tau_formula tau_certificate error_certificate", (SIZE, None)),
    **each(SWEPT, [SIZE]),
    **{"=": lambda row: len({len(row[name]) for name in SWEPT.split()}) == 1},
)


def simulation_report(curve: SimulationCurve) -> str:
    """Returns the table of temperatures and errors, and the notes."""
    shown = [column for column in SHOWN if column[1] in curve.table.columns]
    lines = [[header for header, _ in shown]]
    lines += [[_cell(row, key) for _, key in shown] for row in curve]
    table = aligned(lines)
    rule = "-" * len(table[0])
    return "\n".join(
        [
            "",
            "Softmax at a temperature in place of hard attention, by length n (tokens): "
            "certified over",
            "exact reals for the inputs considered; the error was measured.",
            rule,
            table[0],
            rule,
            *table[1:],
            rule,
            *_notes(curve),
        ]
    )


def _notes(curve: SimulationCurve) -> list[str]:
    """The notes of all rows, each with the lengths that it is about."""
    about: dict[str, list[int]] = {}
    for row in curve:
        for note in row["notes"]:
            about.setdefault(note, []).append(row["n"])
    return [
        f"n = {', '.join(map(str, lengths))}: {note}" for note, lengths in about.items()
    ]


def _cell(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.3g}"
    return str(value)


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    shared.define_lengths(values, "4,8,16,32")
    shared.define_model(values)
    shared.define_weighting(values, RANDOM_WEIGHTING)
    delattr(values, "temperature")  # softmax has it here, and --at names it
    flags.DEFINE_string(
        "at",
        None,
        "A temperature at which the error of softmax is certified too: T, inverse_log:A "
        "(A / ln n) or power:A:P (A n^P).",
        flag_values=values,
    )
    validate_grammar(values, "at", _parse_schedule)
    shared.define_inputs(values, default_count=16)
    values.set_default("language", None)
    values["language"].help += (
        " By default members of the preset's own language, and strings one symbol away; "
        "random strings where it has none."
    )
    define_number(
        values,
        "epsilon",
        0.01,
        "The largest error allowed of an entry of the final activations.",
        least=1e-300,
        most=1.0,
    )
    define_count(
        values,
        "max_inputs",
        BUDGET,
        "All inputs of a length are listed and run where there are at most this many.",
        0,
    )
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "simulate")
    shared.define_store(values)
    shared.define_figure(values)
    return values


def run(options: flags.FlagValues) -> None:
    """Simulate at the lengths that the store does not hold yet, and report from it."""
    lengths, output = options.lengths, Output.of("simulate", options)
    subject, cells = _ask(options)
    opening = (
        f"simulate: {describe_lengths(lengths)}, error at most {options.epsilon:g}"
    )
    rows, failures = run_lengths(output, cells, opening, "simulate")
    curve = SimulationCurve(Table(tuple(rows)))
    if rows:
        with output.exports() as staged:
            names = _write(staged, subject, curve, failures)
        print(simulation_report(curve))
        print(f"\nWritten to {output.folder}: {', '.join(names)}")
    raise_failed(failures, len(cells), "lengths")


def measure_rows(options: flags.FlagValues, store: Results) -> list[dict[str, Any]]:
    """Returns the rows of `simulate.csv`, each with weighting and the model's hash."""
    subject, cells = _ask(options)
    finish_cells(store, cells)
    return [{**row, **subject.named} for row in found_rows(store, cells)]


def _ask(options: flags.FlagValues) -> tuple[Subject, list[Cell]]:
    """Returns what is asked, and the lengths to simulate."""
    lengths = options.lengths
    prepare_jax(options)
    model = weighted_model(
        options,
        vocab_size=num_symbols(options),
        max_length=lengths[-1],
        weighting=RANDOM_WEIGHTING,
    )
    check_simulable(model)
    subject = read_subject(options, model, lengths)
    more = options.epsilon, options.max_inputs, options.at
    return subject, _cells(subject, lengths, *more)


def _parse_schedule(text: str) -> Any:
    """Temperature of all rows as a function of n."""
    entry = parse_temperature(text) or {"kind": "constant", "value": 1.0}
    if entry.get("of") == "position":
        raise jm.InputError("an error is certified where all rows have one temperature")
    return decode_temperature("temperature", entry, "none")


def _certified_at(schedule: str, found: Simulation) -> dict[str, float]:
    """Temperature of a schedule at a length, and the certified error there."""
    tau = float(_parse_schedule(schedule)(found.length, None, found.model.dtype))
    return {"tau_at": tau, "bound_at": found.certify(tau)}


def _cells(
    subject: Subject,
    lengths: Sequence[int],
    epsilon: float,
    budget: int,
    at: str | None,
) -> list[Cell]:
    """Returns the lengths to simulate."""
    given, cells = isinstance(subject.source, GivenInputs), []
    for n in lengths:
        config = {
            "command": "simulate",
            "version": __version__,
            **subject.named,
            "n": n,
            "epsilon": epsilon,
            "budget": None if given else budget,
            "tokens_sha256": subject.tokens_sha256(n),
            "dtype": subject.model.dtype.name,
            **({} if at is None else {"at": at}),
        }

        def compute(n=n) -> dict[str, Any]:
            found = simulate(
                subject.model,
                n,
                epsilon=epsilon,
                inputs=subject.source,
                budget=budget,
                sweep=True,
            )
            return found.row() | ({} if at is None else _certified_at(at, found))

        cells.append(Cell(config, f"n = {n}", compute, form=FORM | {"n": only(n)}))
    return cells


def _write(
    output: Output,
    subject: Subject,
    curve: SimulationCurve,
    failures: list[Failure],
) -> list[str]:
    """Write the CSV, JSON and figure files; return their names."""
    record = {
        **output.record(),
        "certified": "gap, gap_simulated, the error at tau_formula (by theorem, which "
        "takes tied scores as equal: see notes), bound_certificate and bound_at, over "
        "exact reals, for the inputs considered",
        "measured": "error_formula, error_certificate, errors",
        **subject.named,
        "rows": list(curve),
        "failures": [vars(failure) for failure in failures],
    }
    write_json(output.path("simulate.json"), record)
    curve.to_csv(output.path("simulate.csv"))
    return ["simulate.csv", "simulate.json", *output.draw(curve.plot())]

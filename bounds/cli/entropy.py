"""Cross-entropy on PARITY and 2DYCK against length: optimum, chance, floor, model.

Without a model the levels of the source alone, with the floors that remain where the
influence of one symbol vanishes (eps = 0). With --model its own cross-entropy, over all
prefixes up to n = 14 and over --num_inputs sampled ones beyond, and the floor that its own
eps leaves: --eps=exact takes the change of its log-odds within the pairs of the theorem,
certificate a certified bound for each pair, closed_form one for all inputs of the length.
n counts the symbols of the prefix; --reading=query appends an end token. Results are kept
in --out as they are found, and the same command continues where it stopped.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from absl import flags

import jax_models as jm
from bounds.cli.shared import flags as shared
from bounds.cli.shared.length_sweep import describe_lengths, raise_failed, run_lengths
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.record import Output
from bounds.cli.shared.report import aligned
from bounds.cli.shared.values import define_count, define_number
from bounds.entropy import (
    CLOSENESS,
    check_predictor,
    entropy_figure,
    entropy_levels,
    measure_entropy,
)
from bounds.entropy.closed_form import READINGS
from bounds.store.forms import Form, fields, only
from bounds.store.output import file_sha256, write_csv, write_json
from bounds.store.sweep import Cell, Failure, Results, finish_cells, found_rows
from bounds.store.table import Table
from bounds.version import __version__
from jax_models.languages import get_source
from jax_models.model.reweight import with_dtype

COLUMNS = (
    "n",
    "optimal",
    "unigram",
    "last_symbol",
    "floor_r1",
    "floor_r2",
    "eps",
    "model",
    "model_stderr",
    "p0",
    "eps_kind",
    "floor_kind",
    "floor_stderr",
    "log10_eps",
    "prefixes",
    "enumerated",
)
# Of a row without a model.
LEVELS = fields(*COLUMNS[:7], "p0 eps_kind floor_kind")
LANGUAGES = ("parity", "dyck2")
# The flags that say how a model is measured, beside the seed.
HOW_MEASURED = ("reading", "eps", "num_inputs")


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    flags.DEFINE_enum(
        "language", "parity", LANGUAGES, "Whose prefixes.", flag_values=values
    )
    define_number(
        values,
        "p",
        0.25,
        "Probability of ending at an even count (parity), or of an opening bracket.",
    )
    shared.define_lengths(values, "2:1024:10")
    flags.DEFINE_string("model", None, "Model file (safetensors).", flag_values=values)
    flags.DEFINE_enum(
        "reading",
        "last",
        READINGS,
        "Where the model's prediction is read: at the last symbol, or at an end token "
        "after it.",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "eps",
        "exact",
        CLOSENESS,
        "How far the model's log-odds move within a pair.",
        flag_values=values,
    )
    define_count(
        values, "num_inputs", 256, "Sampled prefixes at each length beyond 14.", 2
    )
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "entropy")
    shared.define_store(values)
    shared.define_figure(values)
    return values


def run(options: flags.FlagValues) -> None:
    """Measure what the store does not hold yet, then report from the store."""
    cells = _ask(options)
    lengths, output = options.lengths, Output.of("entropy", options)
    asked = f"{options.language}, p = {options.p:g}"
    opening = f"entropy: {asked}, at {describe_lengths(lengths)}"
    rows, failures = run_lengths(output, cells, opening, "measure")
    if rows:
        with output.exports() as staged:
            names = _write(staged, rows, failures)
        print("\n".join(_report(rows, options.reading)))
        print(f"\nWritten to {output.folder}: {', '.join(names)}")
    raise_failed(failures, len(cells), "lengths")


def measure_rows(options: flags.FlagValues, store: Results) -> list[dict[str, Any]]:
    """Returns a row per length, without a word or a file.

    Args:
        options: The command's flags.
        store: Where what is measured is kept.

    Returns:
        The rows of `entropy.csv`; without a model, of the levels and floors alone.

    Raises:
        InputError: The flags do not fit together, or a length is refused.
    """
    cells = _ask(options)
    finish_cells(store, cells)
    return found_rows(store, cells)


def _ask(options: flags.FlagValues) -> list[Cell]:
    """Returns the lengths to measure."""
    prepare_jax(options)
    source = get_source(options.language, options.p)
    asked = {"language": options.language, "p": options.p}
    if options.model is None:
        for name in HOW_MEASURED:
            if options[name].present:
                raise jm.InputError(
                    f"--{name} says how a model is measured; name one with --model"
                )
        return _cells(options.lengths, asked, partial(entropy_levels, source), LEVELS)
    model = with_dtype(jm.load(options.model), options.dtype)
    check_predictor(model, source, options.lengths[-1], options.reading)
    how: dict[str, Any] = {
        name: options[name].value for name in (*HOW_MEASURED, "seed")
    }
    asked |= {
        "model_sha256": file_sha256(options.model),
        "dtype": options.dtype,
        **how,
    }
    how["closeness"] = how.pop("eps")
    return _cells(
        options.lengths,
        asked,
        lambda n: measure_entropy(model, source, n, **how).as_row(source),
        fields(
            *COLUMNS, **{"floor_r1" if options.reading == "last" else "floor_r2": float}
        ),
    )


def _cells(
    lengths: Sequence[int],
    asked: Mapping[str, Any],
    measure: Callable[[int], dict[str, Any]],
    form: Form,
) -> list[Cell]:
    """Returns lengths as cells, which depend on what is asked."""
    common = {"command": "entropy", "version": __version__, **asked}
    return [
        Cell(
            {**common, "n": n},
            f"n = {n}",
            partial(measure, n),
            form=form | {"n": only(n)},
        )
        for n in lengths
    ]


def _write(
    output: Output, rows: list[dict[str, Any]], failures: list[Failure]
) -> list[str]:
    """Write the CSV, JSON and figure files; return their names."""
    file = output.values["model"]
    record = {
        **output.record(),
        "unit": "nats per symbol",
        "model_sha256": None if file is None else file_sha256(file),
        "rows": [{name: row.get(name) for name in COLUMNS} for row in rows],
        "failures": [dataclasses.asdict(failure) for failure in failures],
    }
    write_json(output.path("entropy.json"), record)
    write_csv(output.path("entropy.csv"), COLUMNS, rows)
    figure = entropy_figure(Table(tuple(rows)), output.values["language"])
    return ["entropy.csv", "entropy.json", *output.draw(figure)]


def _report(rows: list[dict[str, Any]], reading: str) -> list[str]:
    """Returns a table of the rows, and one sentence about what it shows."""
    names = [
        name for name in COLUMNS[:10] if any(r.get(name) is not None for r in rows)
    ]
    lines = [names]
    for row in rows:
        cells = [row.get(name) for name in names]
        lines.append(["-" if x is None else f"{x:.6g}" for x in cells])
    text = aligned(lines)
    last = rows[-1]
    if last.get("model") is None:
        return [
            "",
            "Cross-entropies in nats; the floors are those of a model in which one symbol "
            "has no influence:",
            *text,
        ]
    floor = last["floor_r1" if reading == "last" else "floor_r2"]
    gap = last["unigram"] - last["model"]
    return [
        "",
        f"Cross-entropies in nats; floors are {last['floor_kind']} at n = {last['n']}:",
        *text,
        "",
        f"At n = {last['n']} the model has {last['model']:.6g} (standard error "
        f"{last['model_stderr']:.2g}): {last['model'] - floor:.3g} above its floor, "
        f"{abs(gap):.3g} {'below' if gap >= 0 else 'above'} the best constant prediction.",
    ]

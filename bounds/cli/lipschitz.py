"""The empirical Lipschitz constant against n, beside the closed forms.

Every number found by search is an estimate from below, marked with its seed and its
iterations; the closed forms and certificates beside it are bounds from above. Results
are kept in --out as they are found, and the same command continues where it stopped.

    --lengths=16,64 --num_inputs=2 --out=results/short
    --model=model.safetensors --lengths=16:256:3 --out=results/mine
"""

import dataclasses
from functools import partial
from typing import Any

from bounds.cli.shared.groups import Figure, Lengths, Read, Sampled, Stored, Weighted
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work, sweep_lengths
from bounds.cli.shared.subject import read_subject, weighted_model
from bounds.curves.inputs import check_changeable
from bounds.curves.measurement import Subject
from bounds.lemma5.lipschitz.curve import (
    NAMES,
    LipschitzCurve,
    lipschitz_report,
    measure_lipschitz,
)
from bounds.lemma5.lipschitz.searches import Effort
from bounds.store.table import Table


class LipschitzOptions(Lengths, Weighted, Sampled, Read, Stored, Figure):
    """Options of the command."""

    DRAWS = lambda _: True

    lengths: tuple[int, ...] = again(Lengths, "lengths", "16:1024:4")
    num_inputs: int = again(Sampled, "num_inputs", 4)
    restarts: int = option(
        Effort.restarts,
        "Starting points of the ascent in the ball; 0 leaves it out.",
        least=0,
    )
    steps: int = option(
        Effort.steps,
        "Steps of the ascent from each.",
        least=1,
        used_if=lambda one: one.restarts > 0,
        otherwise="is of the ascent, which --restarts=0 leaves out",
    )


# What every row has; then come the bounds that apply to the model.
COLUMNS = (
    *("n", "estimate", "scaled", "method", "position", "seed", "iterations"),
    *("influence", "supremum", "radius", "substitution", "local", "ball"),
)
BOUNDS = tuple(f"{kind}_{x}" for kind in ("log10", "looseness") for x in NAMES)


def plan(options: LipschitzOptions) -> Work:
    """Work that estimates max ‖Δoutput‖ / ‖Δembedding‖ of the model at every length."""
    lengths = options.lengths
    check_changeable(lengths[0])
    model = weighted_model(options, max_length=lengths[-1])
    subject = read_subject(options, model, lengths)
    asked, effort = subject.question, Effort(options.restarts, options.steps)
    question: dict[str, Any] = {"query": asked.query, "target": asked.target}
    question["seed"] = subject.seed
    key = {**question, **dataclasses.asdict(effort)}

    def compute(n: int) -> dict[str, Any]:
        row = measure_lipschitz(model, n, subject.source, effort=effort, **question)
        # The store has a column of its own for the seed.
        return {name: value for name, value in row.items() if name != "seed"}

    return sweep_lengths(
        options,
        opening="estimates at ",
        key=lambda n: {**subject.config(n), **key},
        compute=compute,
        export=partial(_export, subject),
        named=subject.named,
    )


def _export(subject: Subject, rows: list[dict[str, Any]]) -> Exports:
    target: Any = subject.question.target  # one of its words
    curve = LipschitzCurve(subject.label, target, Table(tuple(rows)))
    rows = [{**row, "seed": subject.seed} for row in rows]
    bounds = [name for name in BOUNDS if name in curve.table.columns]
    hashed = {"model_sha256": subject.model_sha256}
    record = {**curve.record(), **hashed, "rows": rows}
    report = lipschitz_report(curve) + "\n"
    return Exports(record, report, (*COLUMNS, *bounds), rows, curve.plot)

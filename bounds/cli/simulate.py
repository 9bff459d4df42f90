"""Temperatures at which softmax simulates hard attention, and its error.

At every length: the gap of the model's scores, the temperature of Theorem 26 (with ties,
of its extension) and that of a certificate from measured norms, each for an error of at
most --epsilon in any final activation; and the errors of the tempered softmax twins at
these, as measured. Certified over exact reals for the inputs considered: all inputs of a
length where there are few enough to list or the model has one layer, else those that the
input flags name; a measured error is the largest of the inputs that were run. Models
without positions or with few symbols have tied scores, whose twins need scores exact to far
below the temperature; unique-hard heads with ties get a tie-breaking term first.

    --preset=ones --lengths=4,8,64 --out=results/ones
    --model=model.safetensors --lengths=4:64:3 --out=results/mine
"""

from typing import Any

from bounds.all_inputs.universe import list_inputs
from bounds.cli.shared import groups
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work, sweep_lengths
from bounds.cli.shared.subject import read_subject, refuse_sampling, weighted_model
from bounds.curves.inputs import GivenInputs
from bounds.simulation.compute import BUDGET, COLUMNS, SimulationCurve, simulate
from bounds.simulation.paper_shape import check_simulable
from bounds.simulation.result import parse_schedule, simulation_report


class SimulateOptions(
    groups.Lengths, groups.HardWeighting, groups.Sampled, groups.Stored, groups.Figure
):
    """Options of the command."""

    lengths: tuple[int, ...] = again(groups.Lengths, "lengths", "4,8,16,32")
    weighting: str | None = again(
        groups.HardWeighting, "weighting", None, " A random model's is average_hard."
    )
    language: str | None = again(
        groups.Inputs,
        "language",
        None,
        " By default members of the preset's own language, and strings one symbol away; "
        "random strings where it has none.",
    )
    num_inputs: int = again(groups.Sampled, "num_inputs", 16)
    at: str | None = option(
        None,
        "A temperature at which the error of softmax is certified too: T, inverse_log:A "
        "(A / ln n) or power:A:P (A n^P).",
        check=parse_schedule,
    )
    epsilon: float = option(
        0.01,
        "The largest error allowed of an entry of the final activations.",
        least=1e-300,
        most=1.0,
    )


def plan(options: SimulateOptions) -> Work:
    """Work that finds the error of the model's softmax simulation at every length."""
    lengths = options.lengths
    model = weighted_model(options, "average_hard", max_length=lengths[-1])
    check_simulable(model)
    subject = read_subject(options, model, lengths)
    given, at = isinstance(subject.source, GivenInputs), options.at
    counts = (list_inputs(model, n, -1, "activation").num_inputs for n in lengths)
    if not given and all(count <= BUDGET for count in counts):
        refuse_sampling(options, "num_inputs", "seed", "language")
    key = {"epsilon": options.epsilon, "budget": None if given else BUDGET}
    if at is not None:
        key["at"] = at
    how: dict[str, Any] = {"epsilon": options.epsilon, "inputs": subject.source}
    schedule = None if at is None else parse_schedule(at)
    compute = lambda n: simulate(model, n, **how, budget=BUDGET, sweep=True).row(
        schedule
    )

    def export(rows: list[dict[str, Any]]) -> Exports:
        curve = SimulationCurve(tuple(rows))
        record = curve.record() | subject.named
        return Exports(record, simulation_report(rows), COLUMNS, rows, curve.plot)

    return sweep_lengths(
        options,
        opening=f"error at most {options.epsilon:g}, at ",
        key=lambda n: {**subject.config(n), **key},
        compute=compute,
        export=export,
        named=subject.named,
    )

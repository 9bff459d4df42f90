"""The average sensitivity against n: symbols that decide the sign.

At every length the mean, over uniform inputs, of the number of positions at which a
substitution changes the sign of the model's decision: its accept rule, its only logit, or
the difference of its two. A random model has two logits. Up to 2^16 inputs all are listed
and the mean is exact; beyond that --num_inputs are sampled, each counted exactly by a scan
of all its neighbours, and the mean has a 95 % interval. Results are kept in --out as they
are found, and the same command continues where it stopped.

    --preset=parity --lengths=4,8,16,64 --num_inputs=4 --out=results/parity
    --model=model.safetensors --lengths=8:1024:8 --out=results/mine
"""

from typing import Any

from bounds import sensitivity
from bounds.cli.shared import groups
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work, sweep_lengths
from bounds.cli.shared.subject import name_model, refuse_sampling, weighted_model
from bounds.curves.inputs import sampled_inputs
from bounds.influence.method import Run
from bounds.influence.targets.table import (
    GRAMMAR,
    check_grammar,
    number_symbol,
    parse_target,
    target_key,
)
from bounds.numbers.notation import parse_bytes
from bounds.sensitivity import COLUMNS, SensitivityCurve
from jax_models.model.transformer import encode_positions


class SensitivityOptions(
    groups.Lengths,
    groups.Weighted,
    groups.Model,
    groups.Query,
    groups.Ties,
    groups.Memory,
    groups.Stored,
    groups.Figure,
):
    """Options of the command."""

    lengths: tuple[int, ...] = again(groups.Lengths, "lengths", "4:1024:9")
    form: str = option(
        "sign",
        "What is counted: sign counts positions, real is 1/4 of the sum of squared "
        "changes, of values in [-1, 1] over two symbols.",
        ("sign", "real"),
    )
    target: str | None = option(
        None,
        f"The number whose sign is watched: {GRAMMAR}, of one "
        "entry; by default the model's decision.",
        check=check_grammar,
    )
    num_inputs: int = option(
        32, "Sampled inputs at each length with more than 2^16 inputs.", least=2
    )


def plan(options: SensitivityOptions) -> Work:
    """Work that computes the model's average sensitivity at every length."""
    longest = options.lengths[-1]
    model = weighted_model(options, max_length=longest, num_classes=2)
    encode_positions(model, longest)  # refuses a length beyond a table, or the memory
    target: Any = None
    if options.target is None:
        sensitivity.decision_of(model)
    else:
        target = parse_target(
            options.target, lambda name: number_symbol(name, None, "--target")
        )
    source = sampled_inputs(model, "random", options.num_inputs, options.seed)
    if all(sensitivity.is_listed(source, n) for n in options.lengths):
        refuse_sampling(options, "num_inputs", "seed")
    memory = options.memory_limit
    run = Run(memory_limit=None if memory is None else parse_bytes(memory))
    named = name_model(options, model)
    names = ("form", "query", "num_inputs", "seed", "ties")
    how: dict[str, Any] = {name: getattr(options, name) for name in names}

    def compute(n: int) -> dict[str, Any]:
        return sensitivity.as_row(
            sensitivity.average_sensitivity(model, n, target=target, run=run, **how)
        )

    def export(rows: list[dict[str, Any]]) -> Exports:
        curve = SensitivityCurve(named["weighting"], rows)
        record = {**named, "form": options.form, **curve.record()}
        return Exports(record, curve.report(how["form"]), COLUMNS, rows, curve.plot)

    return sweep_lengths(
        options,
        opening="averages at ",
        key=options.key("dtype")
        | {**how, **named, "target": target_key(target or "decision")},
        compute=compute,
        export=export,
        named=named,
    )

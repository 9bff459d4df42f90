"""What a training run recorded, as rows of a table and as text."""

from collections.abc import Mapping
from typing import Any

from jax_models.languages.source import Levels
from jax_models.training import TrainingRun


def columns(run: TrainingRun) -> list[str]:
    """Returns the columns of `train.csv`.

    Args:
        run: The run; its measured lengths n have columns `loss_n` and `stderr_n`.

    Returns:
        Their names.
    """
    _, measured = run.measured[-1]
    by_length = [f"{kind}_{n}" for kind in ("loss", "stderr") for n in measured.lengths]
    return ["step", "loss", "optimal", *by_length]


def records(run: TrainingRun) -> list[dict[str, Any]]:
    """Returns one row for each step, and one after the last; nats per symbol.

    Args:
        run: The run.

    Returns:
        Rows of `columns(run)`: the loss of the step's batch before the step and the least
        possible one; losses by length only where they were measured.
    """
    rows: list[dict[str, Any]] = [
        {"step": step, "loss": loss, "optimal": optimal}
        for step, (loss, optimal) in enumerate(
            zip(run.losses.tolist(), run.optimal.tolist(), strict=True)
        )
    ]
    rows.append({"step": len(rows)})
    for step, measured in run.measured:
        for kind, values in (
            ("loss", measured.mean),
            ("stderr", measured.standard_error),
        ):
            for n, value in zip(measured.lengths, values.tolist(), strict=True):
                rows[step][f"{kind}_{n}"] = value
    return rows


def training_report(run: TrainingRun, levels: Mapping[int, Levels]) -> str:
    """Returns the losses by length at the end beside the levels, as text.

    Args:
        run: The run.
        levels: What predictions with full, little and no knowledge cost, by length.

    Returns:
        A table.
    """
    _, final = run.measured[-1]
    lines = [
        "",
        f"Cross-entropy after {len(run.losses)} steps, nats per symbol:",
        f"{'n':>8}  {'model':>10}  {'+-':>8}  {'optimal':>8}  {'last symbol':>11}  "
        f"{'unigram':>8}",
    ]
    for n, loss, error in zip(
        final.lengths, final.mean, final.standard_error, strict=True
    ):
        level = levels[n]
        lines.append(
            f"{n:>8}  {loss:>10.5f}  {error:>8.5f}  {level.optimal:>8.5f}  "
            f"{level.last_symbol:>11.5f}  {level.unigram:>8.5f}"
        )
    return "\n".join(lines)

"""The figure of a training run: losses against the step, beside what can be had."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bounds.curves.figures import LOOKS
from jax_models.languages.source import Levels

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What is shown above the highest level: the first steps of a run may lie far higher.
HEADROOM = 0.5


def loss_figure(
    rows: Sequence[Mapping[str, Any]],
    lengths: Sequence[int],
    length: int,
    levels: Levels,
) -> "Figure":
    """Draw the loss against the step.

    Args:
        rows: Of a run, each with `step`, and some of `loss`, `optimal` and `loss_n` of
            the measured lengths n; nats per symbol.
        lengths: Those n.
        length: n of the longest training sequences.
        levels: What predictions cost at that length.

    Returns:
        The figure, one column of a paper wide.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2, 3.8), layout="constrained")
    axes = figure.add_subplot()
    steps = [row for row in rows if "loss" in row]
    at = np.array([row["step"] for row in steps])
    batch = np.array([row["loss"] for row in steps])
    axes.plot(at, batch, color="0.8", linewidth=0.5, label="batch", zorder=0)
    for look, n in zip(_looks(len(lengths)), lengths, strict=True):
        measured = [row for row in rows if f"loss_{n}" in row]
        axes.plot(
            [row["step"] for row in measured],
            [row[f"loss_{n}"] for row in measured],
            label=f"n = {n}",
            markersize=3.5,
            linewidth=1.0,
            **look,
        )
    shown = (
        (levels.unigram, "unigram", "-."),
        (levels.last_symbol, "last symbol", "--"),
        (levels.optimal, "optimum", "-"),
        (float(np.mean([row["optimal"] for row in steps])), "optimum, batches", ":"),
    )
    for level, words, dash in shown:
        label = f"{words}, n = {length}" if "batches" not in words else words
        axes.axhline(level, color="0.4", linewidth=0.9, linestyle=dash, label=label)
    lowest = min(level for level, *_ in shown)
    spread = levels.unigram - lowest
    # Lengths beyond may cost far more; how those that were trained on end is seen.
    names = [f"loss_{n}" for n in lengths if n <= length]
    ends = [[row[name] for row in rows if name in row][-1] for name in names]
    highest = max(levels.unigram, batch[-1], *ends) + HEADROOM * spread
    axes.set_ylim(min(lowest, batch.min()) - 0.1 * spread, highest)
    axes.locator_params("x", integer=True)
    axes.set_xlabel("step")
    axes.set_ylabel("cross-entropy (nats per symbol)")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=7)
    return figure


def _looks(count: int) -> list[Mapping[str, Any]]:
    """Returns looks for any number of lines; beyond those at hand they repeat."""
    return [LOOKS[index % len(LOOKS)] for index in range(count)]

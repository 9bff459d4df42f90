"""Does the cross-entropy of trained transformers climb to the floor of Theorem 6?

Networks trained on PARITY and 2DYCK up to n = 40 are measured at lengths far beyond: the
cross-entropy at the last symbol, by enumeration up to n = 14 and from sampled pairs
beyond; eps(n), how far the log-odds move within the pairs of the theorem, exactly for
each pair; and the floor that this eps leaves. The recurrent network is measured on
PARITY too, with the influence of the last but one symbol on its log-odds. Rows go to
results.sqlite in --out, a row that is there is not measured again, and the table and the
figure are made from the rows. Training goes on where it was stopped.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

import jax_models as jm
from benchmarks.page import replace_table, table_text
from benchmarks.script import find_or_measure
from bounds.curves.decay import describe_trend, fit_decay, show_interval
from bounds.entropy import measure_entropy
from bounds.figures.primitives import LOOKS, save_figure
from bounds.store.output import sha256
from bounds.store.results import ResultStore
from jax_models.constructions.rnn import ElmanNetwork, init_elman
from jax_models.languages import get_source
from jax_models.languages.base import Source
from jax_models.model.pytree import in_bytes
from jax_models.training import (
    Measuring,
    Training,
    TrainingRun,
    describe,
    measure_losses,
    run_training,
)
from jax_models.training.prediction import compute_logits

LENGTH = 40
MEASURING = Measuring((5, 10, 20, 40), 512)
SHAPE: dict[str, Any] = {
    "num_layers": 2,
    "num_heads": 4,
    "d_model": 32,
    "d_ff": 128,
    "mask": "future",
    "layer_norm": "pre",
}
WIDTH = 16  # of the recurrent network


@dataclasses.dataclass(frozen=True)
class Subject:
    """A network with its source and its training.

    Attributes:
        words: Label of the network in the figure.
        language: Name of the source.
        p: Probability that the source takes.
        position: The position encoding; None for the recurrent network.
        training: Settings of the training.
    """

    words: str
    language: str
    p: float
    position: str | None
    training: Training

    @property
    def source(self) -> Source:
        """Source whose next symbol the network predicts."""
        return get_source(self.language, self.p)

    def first_network(self) -> Any:
        """Returns the network that training starts from."""
        key, classes = jax.random.key(0), self.source.num_classes
        symbols = len(self.source.symbols)
        if self.position is None:
            return init_elman(key, width=WIDTH, vocab_size=symbols, num_classes=classes)
        return jm.init_transformer(
            key,
            **SHAPE,
            position=self.position,
            vocab_size=symbols,
            architecture=jm.Architecture(final_norm=True, num_classes=classes),
        )


def _training(steps: int, **changed: Any) -> Training:
    settings: dict[str, Any] = {
        "batch_size": 32,
        "learning_rate": 3e-3,
        "all_positions": True,
        "checkpoint_every": 1000,
        **changed,
    }
    return Training(LENGTH, steps, **settings)


SUBJECTS = {
    "parity": Subject("no positions", "parity", 0.5, "none", _training(12000)),
    "parity_sinusoidal": Subject(
        "sinusoidal positions", "parity", 0.5, "sinusoidal", _training(12000)
    ),
    "dyck2": Subject("no positions", "dyck2", 0.25, "none", _training(8000)),
    "parity_rnn": Subject(
        "recurrent", "parity", 0.5, None, _training(4000, num_lengths=8, growth=0.5)
    ),
}


def train_subject(name: str, out: Path) -> TrainingRun:
    """Trains a network of `SUBJECTS`, from its checkpoint in `out` if there is one."""
    subject = SUBJECTS[name]
    out.mkdir(parents=True, exist_ok=True)
    return run_training(
        subject.first_network(),
        subject.source,
        subject.training,
        jax.random.key(1),
        measuring=MEASURING,
        checkpoint=out / f"{name}.checkpoint.safetensors",
        progress=lambda standing: print(f"{name}: {describe(standing)}", flush=True),
    )


def in_float64(network: Any) -> Any:
    """Returns a network with its weights cast to float64."""
    if isinstance(network, ElmanNetwork):
        return jax.tree.map(lambda leaf: leaf.astype("float64"), network)
    return jm.with_dtype(network, "float64")


NAMES = flags.DEFINE_list("models", list(SUBJECTS), "some of the networks")
LENGTHS = flags.DEFINE_list(
    "lengths",
    "2 4 6 8 16 24 32 40 64 128 256 512 1024".split(),
    "lengths n, even: 2DYCK has other levels at odd ones",
)
INPUTS = flags.DEFINE_integer("num_inputs", 128, "prefixes per length", lower_bound=2)
OUT = flags.DEFINE_string("out", "results/theorem6", "folder of models and store")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")
DOCS = flags.DEFINE_string("docs", None, "page whose table is replaced")
FIGURE = flags.DEFINE_string("figure", None, "stem of the figure's file")

SEED = 0
FITTED = 64  # the shortest length of the fit of eps
SHOWN = (8, 40, 64, 1024)  # lengths in the page; the figure has all
HEAD = ["model", "n", "cross-entropy", "floor", "ε(n)", "n ε(n)", "optimum"]
HEAD += ["last symbol", "unigram"]


def measure(network: Any, subject: Subject, length: int) -> dict[str, Any]:
    """Returns one row: the source's levels, the network's cross-entropy, eps and floor."""
    if isinstance(network, ElmanNetwork):
        return measure_recurrent(network, subject, length)
    found = measure_entropy(
        network, subject.source, length, num_inputs=INPUTS.value, seed=SEED
    )
    return found.as_row(subject.source)


def measure_recurrent(
    network: ElmanNetwork, subject: Subject, length: int
) -> dict[str, Any]:
    """Returns the row of a recurrent network, estimated from samples at every length."""
    source, key = subject.source, jax.random.key(SEED)
    count = INPUTS.value
    found = measure_losses(network, source, (length,), key, count=count)
    strings = source.sample(jax.random.fold_in(key, length), length, count)
    read = jax.jit(
        jax.vmap(lambda x: compute_logits(network, x, jnp.asarray([length - 1]))[0])
    )
    moved = read(strings.at[:, length - 2].set(1 - strings[:, length - 2]))
    change = np.asarray(moved - read(strings))
    levels = source.levels(length)
    return {
        "optimal": levels.optimal,
        "last_symbol": levels.last_symbol,
        "unigram": levels.unigram,
        "model": float(found.mean[0]),
        "model_stderr": float(found.standard_error[0]),
        "eps": float(np.abs(change[:, 2:] - change[:, :2]).max(axis=1).mean()),
        "floor_r1": None,
    }


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns the measured rows as a Markdown table."""
    return table_text(HEAD, [_cells(row) for row in rows])


def _cells(row: Mapping[str, Any]) -> list[str]:
    eps, floor = row["eps"], row["floor_r1"]
    known = eps is not None and math.isfinite(eps)
    return [
        row["name"],
        str(row["n"]),
        _with_error(row["model"], row["model_stderr"]),
        "" if floor is None else _with_error(floor, row["floor_stderr"]),
        f"{eps:.3g}" if known else "",
        f"{row['n'] * eps:.3g}" if known else "",
        *(f"{row[level]:.4f}" for level in ("optimal", "last_symbol", "unigram")),
    ]


def _with_error(value: float, error: float | None) -> str:
    """Returns the text of a number and, if it has one, its standard error."""
    return f"{value:.4f}" + (f" ± {error:.4f}" if error else "")


def describe_fall(name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns a line on the fitted decay of eps from n = `FITTED` on."""
    some = [row for row in rows if row["name"] == name and row["n"] >= FITTED]
    fit = fit_decay([row["n"] for row in some], [row["eps"] for row in some])
    if fit.exponent is None:
        return f"{name}: too few lengths to fit an exponent of eps"
    found = f"exponent {fit.exponent:z.3f}, {show_interval(fit)}"
    return f"{name}: from n = {FITTED} on eps {describe_trend(fit)} ({found})"


def draw(rows: Sequence[Mapping[str, Any]], stem: str) -> None:
    """Draws cross-entropies with the levels, and eps, in one column for each language."""
    from matplotlib.figure import Figure

    languages = list(dict.fromkeys(SUBJECTS[row["name"]].language for row in rows))
    figure = Figure(figsize=(4.2 * len(languages), 6.0), layout="constrained")
    panels = figure.subplots(2, len(languages), sharex=True, squeeze=False)
    for column, language in enumerate(languages):
        own = [row for row in rows if SUBJECTS[row["name"]].language == language]
        _draw_language(panels[0][column], panels[1][column], own)
        panels[0][column].set_title(f"{language}, p = {SUBJECTS[own[0]['name']].p}")
    panels[0][0].set_ylabel("cross-entropy (nats per symbol)")
    panels[1][0].set_ylabel("ε(n): change of log-odds in a pair")
    save_figure(figure, stem, ["png"])


def _draw_language(above: Any, below: Any, rows: Sequence[Mapping[str, Any]]) -> None:
    levels = {row["n"]: row for row in rows}
    n = sorted(levels)
    for level, dash in (("unigram", "-."), ("last_symbol", "--"), ("optimal", "-")):
        values = [levels[one][level] for one in n]
        words = level.replace("_", " ")
        above.plot(n, values, color="0.45", linestyle=dash, linewidth=1, label=words)
    for look, name in zip(
        LOOKS, dict.fromkeys(row["name"] for row in rows), strict=False
    ):
        own = [row for row in rows if row["name"] == name]
        at, words = [row["n"] for row in own], SUBJECTS[name].words
        errors = [2 * row["model_stderr"] for row in own]
        above.errorbar(
            at, [row["model"] for row in own], errors, label=words, markersize=4, **look
        )
        if own[0]["floor_r1"] is not None:
            floors = [row["floor_r1"] for row in own]
            faint = {"color": look["color"], "alpha": 0.35, "linewidth": 3}
            above.plot(at, floors, label=f"its floor: {words}", zorder=0, **faint)
        eps = [row["eps"] for row in own]
        below.plot(at, eps, markersize=4, **look)
    top = max(row["unigram"] for row in rows)
    bottom = min(row["optimal"] for row in rows)
    above.set_ylim(bottom - 0.1 * (top - bottom), top + 0.6 * (top - bottom))
    below.plot(n, [10 / one for one in n], color="0.6", linewidth=0.8)
    below.annotate("10/n", (n[0], 10 / n[0]), color="0.4", fontsize=8)
    for axes in (above, below):
        axes.set_xscale("log", base=2)
    below.set_yscale("log")
    below.set_xlabel("length n (symbols)")
    above.axvline(40, color="0.8", linewidth=0.8, zorder=0)
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18)}
    handles, labels = above.get_legend_handles_labels()
    below.legend(handles, labels, fontsize=8, frameon=False, ncols=2, **place)


def main(arguments: list[str]) -> None:
    """Trains the networks, measures the rows that the store lacks, and reports."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    out, rows = Path(OUT.value), []
    for name in NAMES.value:
        network = in_float64(train_subject(name, out).network)
        if isinstance(network, jm.Transformer):
            jm.save(network, out / f"{name}.safetensors")
        with ResultStore(out / "results.sqlite") as store:
            for n in map(int, LENGTHS.value):
                config = {
                    "command": "theorem6",
                    "dtype": "float64",
                    "name": name,
                    "network_sha256": sha256(in_bytes(network)),
                    "n": n,
                    "num_inputs": INPUTS.value,
                    "seed": SEED,
                }
                row = find_or_measure(
                    store,
                    config,
                    functools.partial(measure, network, SUBJECTS[name], n),
                    fresh=FRESH.value,
                )
                rows.append({**row, "name": name, "n": n})
                print(table(rows[-1:]).splitlines()[-1], flush=True)
    text = table(rows)
    falls = [describe_fall(name, rows) for name in NAMES.value]
    print("\n".join([text, *falls]))
    if DOCS.value is not None:
        listed = "\n".join(f"* {fall}" for fall in falls)
        text = table([row for row in rows if row["n"] in SHOWN])
        replace_table(Path(DOCS.value), "theorem6", f"{text}\n\n{listed}")
    if FIGURE.value is not None:
        draw(rows, FIGURE.value)


if __name__ == "__main__":
    app.run(main)

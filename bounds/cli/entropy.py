"""Cross-entropy on PARITY and 2DYCK against n: optimum, chance, floor, a model.

Without a model the levels of the source alone, with the floors that remain where the
influence of one symbol vanishes (eps = 0). With --model its own cross-entropy, over all
prefixes up to n = 14 and over --num_inputs sampled ones beyond, and the floor that its own
eps leaves: --eps=exact takes the change of its log-odds within the pairs of the theorem,
certificate a certified bound for each pair, closed_form one for all inputs of the length.
n counts the symbols of the prefix; --reading=query appends an end token. Results are kept
in --out as they are found, and the same command continues where it stopped.

    --language=dyck2 --p=0.25 --lengths=8,9,64,65 --out=results/brackets
    --model=results/trained/model.safetensors --p=0.5 --out=results/mine
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax_models as jm
from bounds.cli.shared.groups import Computed, Figure, Lengths, Stored
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Exports, Work, sweep_lengths
from bounds.entropy import (
    CLOSENESS,
    check_predictor,
    entropy_figure,
    entropy_levels,
    measure_entropy,
)
from bounds.entropy.closed_form import READINGS
from bounds.entropy.measure import COLUMNS, ENUMERATED, entropy_report
from bounds.store.output import file_sha256
from bounds.store.table import Table
from jax_models.languages import read_source
from jax_models.model.reweight import with_dtype

OF_MODEL: dict[str, Any] = {
    "used_if": lambda one: one.model is not None,
    "otherwise": "says how a model is measured; name one with --model",
}
OF_THEOREMS = ("parity", "dyck2")


class EntropyOptions(Lengths, Computed, Stored, Figure):
    """Options of the command."""

    DRAWS = lambda one: one.model is not None and one.lengths[-1] > ENUMERATED

    language: str = option(
        "parity",
        "Whose prefixes: {words}, or an automaton's file (docs/notation.md), of which "
        "the floor is the optimum.",
        *OF_THEOREMS,
        file=True,
    )
    p: float = option(
        0.25,
        "Probability of ending at an even count (parity) or in an accepting state (file), "
        "or of an opening bracket.",
    )
    lengths: tuple[int, ...] = again(Lengths, "lengths", "2:1024:10")
    model: str | None = option(None, "Model file (safetensors).", file=True)
    reading: str = option(
        "last",
        "Where the model's prediction is read: at the last symbol, or at an end token "
        "after it.",
        READINGS,
        **OF_MODEL,
    )
    eps: str = option(
        "exact",
        "How far the model's log-odds move within a pair.",
        CLOSENESS,
        used_if=lambda one: one.model is not None and one.language in OF_THEOREMS,
        otherwise="says how a --model is measured on parity or dyck2; of a file's language "
        "the floor is the optimum, which it does not move; leave it out",
    )
    num_inputs: int = option(
        256,
        "Sampled prefixes at each length beyond 14.",
        least=2,
        used_if=lambda one: one.is_random,
        otherwise="is of a --model and lengths beyond 14; leave it out",
    )
    dtype: str = again(Computed, "dtype", "float64", **OF_MODEL)


HOW_MEASURED = ("reading", "eps", "num_inputs", "seed")


def plan(options: EntropyOptions) -> Work:
    """Work that computes the cross-entropies at every length."""
    source, language = read_source(options.language, options.p)
    key: dict[str, Any] = {"language": language, "p": options.p}
    hashed = None
    compute: Callable[[int], dict[str, Any]] = partial(entropy_levels, source)
    if options.model is not None:
        model = with_dtype(jm.load(options.model), options.dtype)
        check_predictor(model, source, options.lengths[-1], options.reading)
        how: dict[str, Any] = {name: getattr(options, name) for name in HOW_MEASURED}
        hashed = file_sha256(options.model)
        key |= {"model_sha256": hashed, "dtype": options.dtype, **how}
        how["closeness"] = how.pop("eps")
        compute = lambda n: measure_entropy(model, source, n, **how).as_row(source)

    def export(rows: list[dict[str, Any]]) -> Exports:
        every = [{name: row.get(name) for name in COLUMNS} for row in rows]
        record = {"unit": "nats per symbol", "model_sha256": hashed, "rows": every}
        reading = None if hashed is None else options.reading
        report = entropy_report(rows, options.language in OF_THEOREMS, reading)
        figure = partial(entropy_figure, Table(tuple(rows)), options.language)
        return Exports(record, report, COLUMNS, rows, figure)

    return sweep_lengths(
        options,
        opening=f"{options.language}, p = {options.p:g}, at ",
        key=key,
        compute=compute,
        export=export,
    )

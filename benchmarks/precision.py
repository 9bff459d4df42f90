"""How far are a scan's values off, and how far does it say they may be?

Scans of trained encoders (`make real` unpacks them into .real), of a causal model and of deep
models with random weights, and of PARITY, beside the same in float64: every row of every
substitution. Ways: passes subtracted in float32 (`partial`), changes in float32
(`incremental`), changes whose products are of half precision, and passes subtracted whose
products all are; and `proposed`: what the largest influence of one row costs in float64,
proposed in float32 and ranked in half precision. Of the others a row of the store is one
part of a model's substitutions, so that a run that was stopped goes on. `--pairs=2000` asks
for so many substitutions a model; the table joins the parts (its quantiles are the medians
of theirs).
"""

import dataclasses
import itertools
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

import bounds
import jax_models as jm
from benchmarks.flags import benchmark_flags, define_choices
from benchmarks.page import digits, table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from benchmarks.trained import CAUSAL, ENCODERS, draw_question, read_trained
from bounds.influence.methods.proposed import Cheap
from bounds.influence.table.layout import Reading
from bounds.influence.targets.change import read_target
from bounds.rounding.precision import PRECISIONS, Precision
from bounds.rounding.rounded_block import round_products
from jax_models import InputError
from jax_models.constructions.parity import parity_transformer
from jax_models.model.transformer import Transformer, forward

TYPES: tuple[Cheap, ...] = ("float32", "bfloat16", "float16")
REPEATS = 3


def measure_proposals(
    model: jm.Transformer, tokens: np.ndarray, types: Sequence[Cheap], **asked: Any
) -> dict[str, Any]:
    """Returns one row: of float64 and each proposing type, seconds and decided counts."""

    def ask(propose: Cheap | None) -> tuple[bounds.Influence, float]:
        start = time.perf_counter()
        found = bounds.compute_influence(
            model,
            tokens,
            keep="max",
            method="auto" if propose is None else bounds.Proposed(propose),
            **asked,
        )
        return found, time.perf_counter() - start

    ways = (None, *types)
    first = [ask(way) for way in ways]
    rounds = [[ask(way)[1] for way in ways] for _ in range(REPEATS)]
    warm = [statistics.median(seconds) for seconds in zip(*rounds, strict=True)]
    plain, _ = first[0]
    row: dict[str, Any] = {"n": int(tokens.size), "pairs": plain.substitutions}
    row |= {"method": plain.method, "influence": plain.max}
    for way, (found, seconds), median in zip(ways, first, warm, strict=True):
        name = way or "float64"
        row |= {f"{name}_seconds": median, f"{name}_compile_seconds": seconds - median}
        if found.decided is not None:
            row[f"{name}_decided"] = found.decided
            same = [(x.max, x.position, x.symbol) for x in (found, plain)]
            row[f"{name}_same"] = same[0] == same[1]
        if found.measured_error is not None:
            row[f"{name}_error"] = found.measured_error.max
    return row


def show_proposals(name: str, row: Row) -> str:
    """Returns a line of text on one measured row."""
    ways = [
        f"{way} {digits(row[f'{way}_seconds'])} s, {row[f'{way}_decided']} decided"
        for way in TYPES
        if f"{way}_seconds" in row
    ]
    return (
        f"{name}, n = {row['n']}, {row['pairs']} substitutions by {row['method']}: float64 "
        f"{digits(row['float64_seconds'])} s; {'; '.join(ways)}"
    )


def proposal_table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table."""
    head = ["model", "n", "substitutions", "method", "float64, s (compiling)"]
    for name in TYPES:
        head += [f"{name}, s (compiling)", "decided"]
    lines = []
    for config, row in measured:
        line = [config["model"], str(row["n"]), str(row["pairs"]), row["method"]]
        for name in ("float64", *TYPES):
            if f"{name}_seconds" not in row:
                line += ["", ""]
                continue
            seconds = (row[f"{name}_seconds"], row[f"{name}_compile_seconds"])
            warm, more = map(digits, seconds)
            line.append(f"{warm} ({'' if more.startswith('-') else '+'}{more})")
            if name != "float64":
                missed = "" if row[f"{name}_same"] else ", missed"
                line.append(f"{row[f'{name}_decided']}{missed}")
        lines.append(line)
    return table_text(head, lines)


FLAGS = benchmark_flags("precision", table=True)
READOUT = jm.Architecture(num_classes=8)
GELU = dataclasses.replace(READOUT, activation="gelu")
RANDOM: dict[str, dict[str, Any]] = {
    "pre-norm": {"num_layers": 4, "layer_norm": "pre", "architecture": GELU},
    "post-norm": {"num_layers": 4, "layer_norm": "post", "architecture": GELU},
    "relu": {"num_layers": 3},
}
SHAPE: dict[str, Any] = {"num_heads": 4, "d_model": 64, "d_ff": 256, "vocab_size": 24}
NAMES = [*ENCODERS, *RANDOM, "parity"]
MODELS = define_choices(FLAGS, "models", NAMES, NAMES, "models")
WAYS = ["partial", "incremental", *get_args(Precision)]
WAYS += [f"{name} subtracted" for name in get_args(Precision)]
HALF = WAYS[2:]
PROPOSED = "proposed"
WAYS += [PROPOSED]
CHOSEN = define_choices(FLAGS, "ways", ["partial"], WAYS, "ways")
PROPOSING = define_choices(FLAGS, "propose", TYPES, TYPES, "types that propose")
PAIRS = flags.DEFINE_integer(
    "pairs", 96, "substitutions of a model", lower_bound=1, flag_values=FLAGS
)
PACKAGES = flags.DEFINE_string(
    "packages", ".real", "folder of the unpacked packages", flag_values=FLAGS
)
# Substitutions of a part: of four positions. Passes of the small random models are cheap:
# their parts are of every position but the last, which is read.
PART, SUBSTITUTES, LENGTH = 48, 12, 128
WHOLE = (LENGTH - 1) * SUBSTITUTES


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries, without models whose packages are missing."""
    for name, way in itertools.product(MODELS.value, CHOSEN.value):
        try:
            build(name, "float32")
        except InputError as error:
            print(f"skipped: {error}")
            continue
        if way == PROPOSED:
            asked = {"propose": list(PROPOSING.value), "pairs": PAIRS.value}
            yield {"model": name, "way": way} | asked
            continue
        size = WHOLE if name in RANDOM and way == "partial" else PART
        more = {} if size == PART else {"size": size}
        for part in range(-(-PAIRS.value // size)):
            yield {"model": name, "way": way, "dtype": "float32", "part": part} | more


def build(name: str, dtype: str) -> Transformer:
    """Returns a model; in float64 the model with the same float32 weights."""
    if name == "parity":
        model = parity_transformer(dtype=jnp.float32)
    elif name == "causal" or name in RANDOM:
        options = CAUSAL if name == "causal" else {**SHAPE, **RANDOM[name]}
        key = jax.random.key(0)
        options = {"architecture": READOUT, **options}
        model = jm.random_transformer(key, dtype="float32", **options)
    else:
        head = "masked_lm" if name == "antiberty" else None
        model = read_trained(name, Path(PACKAGES.value), "float32", head)
    if dtype == "float32":
        return model
    return jax.tree.map(
        lambda x: x.astype(dtype) if x.dtype == jnp.float32 else x, model
    )


def draw(
    name: str, model: Transformer, seed: int, pairs: int = PART
) -> tuple[np.ndarray, list[int], np.ndarray | None]:
    """Returns an input, positions and substitutes, for about `pairs` substitutions."""
    count = -(-pairs // SUBSTITUTES)
    if name in ENCODERS:
        tokens, positions, symbols = draw_question(
            ENCODERS[name], count, SUBSTITUTES, seed
        )
        return tokens, positions.tolist(), symbols
    draws = np.random.default_rng(seed)
    last = LENGTH - 1
    tokens = draws.integers(0, model.vocab_size, LENGTH)
    if name == "parity":  # bits, and the token where the answer stands
        tokens = np.append(draws.integers(0, 2, last), 2)
        count = pairs
    positions = np.sort(draws.choice(last, min(count, last), False))
    return tokens, positions.tolist(), None


def subtracted(
    model: Transformer, name: str, asked: Mapping[str, Any], found: bounds.Scan
) -> np.ndarray:
    """Returns a scan's changes by subtracting passes with half-precision products."""
    rows, target = jnp.asarray(found.rows), asked["target"]
    everything = jax.tree.map(lambda _: True, model)

    @jax.jit
    def rounded(tokens: Any) -> Any:
        return round_products(
            PRECISIONS[name],
            lambda model: read_target(model, forward(model, tokens)[0][rows], target),
            (model,),
            (everything,),
        )

    norms = Reading("norm")
    base = rounded(jnp.asarray(found.tokens))
    values = np.full(found.values.shape, np.nan)
    for place in np.argwhere(np.isfinite(found.values[..., 0])):
        tokens = found.tokens.copy()
        symbols = np.broadcast_to(found.symbols, found.values.shape[:2])
        tokens[found.positions[place[0]]] = symbols[tuple(place)]
        change = np.asarray(rounded(jnp.asarray(tokens)) - base, np.float64)
        values[tuple(place)] = norms(change)
    return values


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: errors and radii of a part's substitutions, or costs of proposing."""
    name, way = config["model"], config["way"]
    if way == PROPOSED:
        model = build(name, "float64")
        drawn = draw(name, model, config["seed"], config["pairs"])
        tokens, positions, symbols = drawn
        asked = {"positions": positions, "symbols": symbols}
        query = ENCODERS[name].row if name in ENCODERS else -1
        types = config["propose"]
        return measure_proposals(model, tokens, types, query=query, **asked)
    model = build(name, "float32")
    drawn = draw(name, model, config["seed"] + config["part"], config.get("size", PART))
    tokens, positions, symbols = drawn
    asked: dict[str, Any] = {
        "positions": positions,
        "symbols": symbols,
        "rows": "all",
        "target": "activation" if model.classes is None else "logits",
    }
    true = bounds.scan(build(name, "float64"), tokens, **asked)
    half, _, subtracts = way.partition(" ")
    if subtracts:
        values = subtracted(model, half, asked, true)
        radii = np.full(values.shape, np.inf)
    else:
        how: dict[str, Any] = {"method": way, "rounding": "all"}
        how = {"method": bounds.Incremental(way)} if way in PRECISIONS else how
        found = bounds.scan(model, tokens, **asked, **how)
        values = found.values
        radii = found.upper - values if found.kind != "estimated" else np.inf + values
    there = np.isfinite(values) & (true.values != 0)
    errors, radii = np.abs(values - true.values)[there], radii[there]
    truth = np.abs(true.values[there])
    row = {
        "pairs": true.substitutions,
        "n": int(tokens.size),
        "entries": int(errors.size),
        "change_50": float(np.median(truth)),
        "largest": float(truth.max()),
        "error_50": float(np.quantile(errors, 0.5)),
        "error_99": float(np.quantile(errors, 0.99)),
        "relative_50": float(np.quantile(errors / truth, 0.5)),
        "relative_99": float(np.quantile(errors / truth, 0.99)),
    }
    if np.isfinite(radii).all():
        row["outside"] = int((errors > radii).sum())
        row["of_radius"] = float((errors / radii).max())
        row["radius_50"] = float(np.median(radii))
    return row


HEAD = (
    *("model", "n", "way", "substitutions", "entries", "change, median"),
    *("error, 99 %", "relative error, median", "99 %", "radius, median"),
    *("radius / error, 99 %", "outside", "error / radius at most"),
)


def joined(rows: list[Row]) -> dict[str, Any]:
    """Returns the parts' rows as one: sums, medians over parts, and largest errors."""
    found: dict[str, Any] = {
        x: sum(row[x] for row in rows) for x in ("pairs", "entries")
    }
    medians = ("change_50", "error_99", "relative_50", "relative_99")
    found |= {x: statistics.median(row[x] for row in rows) for x in medians}
    if "outside" in rows[0]:
        found["outside"] = sum(row["outside"] for row in rows)
        found["radius_50"] = statistics.median(row["radius_50"] for row in rows)
        ratios = (row["radius_50"] / row["error_99"] for row in rows if row["error_99"])
        found["ratio"] = statistics.median(ratios)
        found["of_radius"] = max(row["of_radius"] for row in rows)
    return found


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    if config["way"] == PROPOSED:
        return show_proposals(config["model"], row)
    text = (
        f"{config['model']}, n = {row['n']}, {config['way']}, part {config['part']}: "
        f"{row['entries']} entries of {row['pairs']} substitutions, error "
        f"{row['error_99']:.2g}, {100 * row['relative_99']:.2g} % (99 %)"
    )
    if "outside" not in row:
        return text
    return (
        f"{text}; radius {row['radius_50']:.2g} (median), errors at most "
        f"{row['of_radius']:.2g} of it, {row['outside']} outside"
    )


def table(measured: Measured) -> str:
    """Returns Markdown tables of errors by model and way, and of costs of proposing."""
    costs = [one for one in measured if one[0]["way"] == PROPOSED]
    measured = [one for one in measured if one[0]["way"] != PROPOSED]
    tables = [_error_table(measured)] if measured else []
    tables += [proposal_table(costs)] if costs else []
    return "\n\n".join(tables)


def _error_table(measured: Measured) -> str:
    """Table of rows with radii, and a table of half precision by model."""
    groups: dict[tuple[str, int, str], list[Row]] = {}
    for config, row in measured:
        group = config["model"], row["n"], config["way"]
        groups.setdefault(group, []).append(row)
    lines, half = [], {}
    for (name, n, way), rows in groups.items():
        row = joined(rows)
        percent = [f"{100 * row[x]:.2g} %" for x in ("relative_50", "relative_99")]
        counts = [str(row["pairs"]), str(row["entries"])]
        if way in HALF:
            known = half.setdefault((name, n), [*counts, *[""] * len(HALF)])
            known[2 + HALF.index(way)] = " / ".join(percent)
            continue
        sizes = [digits(row[x]) for x in ("change_50", "error_99")]
        radii = [digits(row.get(x)) for x in ("radius_50", "ratio")]
        worst = [str(row.get("outside", "")), digits(row.get("of_radius"))]
        lines.append([name, str(n), way, *counts, *sizes, *percent, *radii, *worst])
    tables = [table_text(HEAD, lines)] if lines else []
    if half:
        head = ("model", "n", "substitutions", "entries", *HALF)
        found = [[name, str(n), *cells] for (name, n), cells in half.items()]
        tables.append(table_text(head, found))
    return "\n\n".join(tables)


BENCHMARK = Benchmark("precision", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)

"""Do the radii hold where rounding is hardest?

Families of models made to lose digits, drawn by seed: every substitution of an input, by all
exact methods, against many digits (`benchmarks.reference`; of long float32 models against
float64). A row is all models of a family: pairs (method, substitution), how many of them are
off by more than the radius, the largest error as a share of the radius, and the median radius
as a share of the influence. Older rows have the same of radii that were derived by hand.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.exact_values import exact_values
from benchmarks.flags import benchmark_flags, define_choices, define_dtypes
from benchmarks.page import table_text
from benchmarks.published_parity import bit_influence
from benchmarks.radii_attacks import (
    KINDS,
    LAYERS,
    LONG,
    PARITY,
    SCANS,
    SHARPNESS,
    SMALL,
)
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from bounds.influence.find import compute_values, ends_of
from bounds.influence.inputs.shared_base import SharedBase
from bounds.influence.method import Method, refusal
from bounds.influence.methods.exhaustive import EXHAUSTIVE
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.methods.lumped import LUMPED
from bounds.influence.methods.partial import PARTIAL
from bounds.influence.moved import found_by, magnitude_of, radii_of, read_blocks
from bounds.influence.request import InfluenceRequest
from bounds.rounding.moved_inputs import RUNS
from jax_models.model.position import PositionTable
from jax_models.model.transformer import encode_positions

FAMILIES: dict[str, Any] = {**SMALL, **LONG, **PARITY, **SCANS}
METHODS = (INCREMENTAL, LUMPED, EXHAUSTIVE, PARTIAL)
# In place of a radius of 0.
SMALLEST = 5e-324
# Tokens from which passes of whole inputs take too long.
PASSES = 200
FLAGS = benchmark_flags("radii", table=True)
CHOSEN = define_choices(FLAGS, "families", list(FAMILIES), list(FAMILIES), "families")
DTYPES = define_dtypes(FLAGS, "float64", "float32")
SEEDS = flags.DEFINE_integer(
    "seeds",
    4,
    "models of each family, or of each of its kinds",
    lower_bound=1,
    flag_values=FLAGS,
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields families by float type and, where they have several, by number of layers."""
    for family, dtype in itertools.product(CHOSEN.value, DTYPES.value):
        if family in (*LONG, *SCANS) and dtype == "float64":
            continue
        models = SEEDS.value * KINDS.get(family, 1)
        for layers in LAYERS.get(family.partition(" (n =")[0], (None,)):
            cell = {"family": family, "dtype": dtype, "layers": layers}
            yield {**cell, "models": models}


def build(config: Config) -> Any:
    """Returns the request of one drawn model: all substitutions of an input, or a scan."""
    draw = np.random.default_rng([config["seed"], config["drawn"]])
    return FAMILIES[config["family"]](config, draw)


def digits(config: Config) -> int:
    """Returns the number of digits that keep a family's smallest influences apart from 0."""
    wide = {"underflow": 744, "dominant": 300, "formula": 600, "leaving": 300}
    wide |= {"peaked": 1000, "equal rows": 1000, "underflow (left out)": 744}
    wide |= {"scores of tens": 744, "large": 744}
    gap = wide.get(config["family"], 60)
    return 40 + int(gap / np.log(10) * (1 if config["dtype"] == "float64" else 0.25))


def true_values(config: Config, request: InfluenceRequest) -> np.ndarray:
    """Returns the request's values in many digits, in float64, or by formula."""
    family = config["family"]
    if family in (*LONG, *PARITY) and config["dtype"] == "float32":
        return found_by(INCREMENTAL, doubled(request))
    if family in PARITY:
        one = bit_influence(SHARPNESS, request.tokens.size - 1)
        return np.full(request.position.size, one)
    return exact_values(request, digits(config))


def doubled(request: InfluenceRequest) -> InfluenceRequest:
    """Returns the same request with its float32 numbers cast to float64."""

    def double(leaf: Any) -> Any:
        single = hasattr(leaf, "dtype") and leaf.dtype == jnp.float32
        return leaf.astype(jnp.float64) if single else leaf

    model, n = jax.tree.map(double, request.model), request.tokens.size
    if model.position is not None:
        table = double(encode_positions(request.model, n))
        model = dataclasses.replace(model, position=PositionTable(table))
    return dataclasses.replace(request, model=model, shared=SharedBase())


def made_by(method: Method, request: InfluenceRequest) -> Any:
    """Returns a scan's values by one method, and their radii by moved inputs."""
    found = compute_values(request, method, RUNS)
    _, upper, _ = ends_of(request, method, found, "all")
    return np.nan_to_num(found.values), np.nan_to_num(upper - found.values)


def moved_radii(
    request: InfluenceRequest, method: Method
) -> tuple[np.ndarray, np.ndarray]:
    """Values of all substitutions by a method, and their radii."""
    found = list(read_blocks(request, method.blocks, RUNS))
    values, moves = (
        np.concatenate([getattr(x, name) for x in found])
        for name in ("values", "moves")
    )
    asked = request, values, moves, magnitude_of(request, method)
    return values, radii_of(*asked, subtracted=method.subtracts)


def compared(
    values: np.ndarray, radii: np.ndarray, truth: np.ndarray
) -> dict[str, float]:
    """Returns the number of values off by more than their radii, and the radii's widths."""
    radii = radii.reshape(radii.shape + (1,) * (values.ndim - radii.ndim))
    radii = np.broadcast_to(radii, values.shape)
    off = np.abs(truth - values.astype(truth.dtype)).astype(np.float64)
    share = np.where(off > 0, off / np.where(radii > 0, radii, SMALLEST), 0.0)
    moved = values != 0
    wide = (radii[moved] / np.abs(values[moved])).astype(np.float64)
    return {
        "outside": int((~(off <= radii)).sum()),
        "of_radius": float(share.max()),
        "wide": float(np.median(wide)) if wide.size else 0.0,
    }


def measure(config: Config) -> dict[str, Any]:
    """Row of a family: the results of `measure_model` for its models, joined."""
    rows = [measure_model({**config, "drawn": k}) for k in range(config["models"])]
    jax.clear_caches()  # a process has room for the programs of some families
    return joined(rows)


def joined(rows: Sequence[Row]) -> dict[str, Any]:
    """Rows as one: sums of counts, medians of widths, and maxima of errors."""
    ways = {"pairs": sum, "outside": sum, "wide": lambda x: float(np.median(list(x)))}
    names = sorted(set().union(*rows))
    return {
        name: ways.get(name.rpartition("_")[2], max)(x[name] for x in rows if name in x)
        for name in names
    }


def measure_model(config: Config) -> dict[str, Any]:
    """Results of one model: by method its pairs, pairs outside, and widths of radii."""
    request = build(config)
    if request.layout is None:
        truth = true_values(config, request)
    else:
        truth = made_by(INCREMENTAL, doubled(request))[0]
    row: dict[str, Any] = {"influence": float(np.abs(truth).max())}
    for method in METHODS:
        passes = method in (EXHAUSTIVE, PARTIAL) and request.tokens.size > PASSES
        if passes or refusal(method, request) is not None:
            continue
        if request.layout is None:
            values, radii = moved_radii(request, method)
        else:
            values, radii = made_by(method, request)
        row[f"{method.name}_pairs"] = int(values.size)
        found = compared(values, radii, truth)
        row |= {f"{method.name}_moved_{k}": x for k, x in found.items()}
    return row


def of_methods(row: Row, what: str) -> list[float]:
    """Returns a row's entries that end in `what`, over the methods that it has."""
    return [row[key] for m in METHODS if (key := f"{m.name}_{what}") in row]


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    pairs = int(sum(of_methods(row, "pairs")))
    outside = int(sum(of_methods(row, "moved_outside")))
    worst = max(of_methods(row, "moved_of_radius"))
    name = f"{config['family']} {config['dtype']} {config['layers'] or ''}"
    return f"{name}: {pairs} pairs, {outside} outside, error / radius {worst:.2g}"


TYPES = ("float64", "float32")
# Share of the radius from which an error gives its family a row in the table.
SHOWN = 0.05
OTHERS = "all others"
COLUMNS = ("pairs", "outside", "error / radius", "radius / influence")
HEAD = ("family", *(f"{dtype}: {what}" for dtype in TYPES for what in COLUMNS))


def table(measured: Measured) -> str:
    """Rows by family, all its kinds and lengths, as a Markdown table.

    Families whose errors are all below `SHOWN` of the radius share the last row.
    """
    families: dict[str, list[tuple[Config, Row]]] = {}
    for config, row in measured:
        name = config["family"].partition(" (")[0]
        families.setdefault(name, []).append((config, row))
    groups: dict[str, list[tuple[Config, Row]]] = {}
    for name, rows in families.items():
        near = _over(max, [row for _, row in rows], "moved_of_radius") >= SHOWN
        groups.setdefault(name if near else OTHERS, []).extend(rows)
    lines = []
    for name in sorted(groups, key=OTHERS.__eq__):
        line = [name]
        for dtype in TYPES:
            rows = [row for config, row in groups[name] if config["dtype"] == dtype]
            if wide := [x for row in rows for x in of_methods(row, "moved_wide")]:
                line.append(str(_over(sum, rows, "pairs")))
                line.append(str(_over(sum, rows, "moved_outside")))
                line.append(f"{_over(max, rows, 'moved_of_radius'):.2g}")
                line.append(f"{np.median(wide):.2g}")
            else:
                line += [""] * len(COLUMNS)
        lines.append(line)
    return table_text(HEAD, lines)


def _over(function: Any, rows: list[Row], what: str) -> Any:
    return function(x for row in rows for x in of_methods(row, what))


BENCHMARK = Benchmark("radii", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)

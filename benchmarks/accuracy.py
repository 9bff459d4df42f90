"""How many digits has each exact method, and does its radius hold what it loses?

For random models, every weighting, and scores from tiny to huge (divided by a constant
temperature), the influence of some substitutions by `incremental`, `lumped` and
`exhaustive` beside the same by rerunning in mpmath (`benchmarks.reference`): the largest
error as a share of the influence, and as a share of the radius that the method states.
For `exhaustive` that is the radius of a subtraction, relative to the outputs and not to
the influence. The substitutions are the one of the largest influence and others spread
over the input. Rounded weights are the model: in float32 the reference takes those of
the float32 file. Where rounding decided a tie, which is reported, errors mean nothing.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags

import jax_models as jm
from benchmarks import reference
from benchmarks.flags import (
    benchmark_flags,
    define_choices,
    define_dtypes,
    define_integers,
    define_lengths,
    define_mask,
    define_weightings,
)
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import random_tokens
from bounds.figures.primitives import LOOKS
from bounds.influence.build import build_request
from bounds.influence.find import compute_values
from bounds.influence.inputs.reading import choose
from bounds.influence.method import Method
from bounds.influence.methods.exhaustive import EXHAUSTIVE
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.methods.lumped import LUMPED
from bounds.influence.moved import radii_of
from bounds.influence.request import InfluenceRequest
from bounds.rounding.moved_inputs import RUNS

FLAGS = benchmark_flags("accuracy", table=True, figure=True)
LENGTHS = define_lengths(FLAGS, "32")
LAYERS = define_integers(FLAGS, "layers", [2], "numbers of layers L")
DTYPES = define_dtypes(FLAGS, "float64", "float32")
WEIGHTINGS = define_weightings(FLAGS, *jm.WEIGHTINGS)
MASK = define_mask(FLAGS)
POSITIONS = define_choices(
    FLAGS,
    "positions",
    ["none", "sinusoidal"],
    ["none", "sinusoidal"],
    "position encodings",
)
# Powers of 10 that the scores are multiplied by.
SCORES = define_integers(
    FLAGS, "scores", [-3, 0, 2], "decades of the scores", lower_bound=-30
)
SAMPLE = flags.DEFINE_integer(
    "sample", 4, "substitutions checked", lower_bound=1, flag_values=FLAGS
)
DIGITS = flags.DEFINE_integer(
    "digits", 50, "digits of the reference", lower_bound=20, flag_values=FLAGS
)

SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 8, "d_ff": 16, "vocab_size": 3}
METHODS = (INCREMENTAL, LUMPED, EXHAUSTIVE)
HEAD = (
    *("type", "weighting", "positions", "scores", "n", "influence"),
    *(f"{method.name} {what}" for method in METHODS for what in ("error", "/ radius")),
)


def cells() -> Iterator[dict[str, Any]]:
    """Yields what the rows differ in, those of one program together."""
    axes = grid(
        dtype=DTYPES.value,
        weighting=WEIGHTINGS.value,
        position=POSITIONS.value,
        layers=LAYERS.value,
        n=LENGTHS.value,
        scores=SCORES.value,
    )
    for cell in axes:
        fixed = {"mask": MASK.value, "sample": SAMPLE.value, "digits": DIGITS.value}
        yield {**cell, **fixed, **SIZES}


def build(config: Config) -> InfluenceRequest:
    """Returns the question that a row's config describes, of all substitutions."""
    position = config["position"]
    model = jm.random_transformer(
        jax.random.key(config["seed"]),
        num_layers=config["layers"],
        weighting=config["weighting"],
        mask=config["mask"],
        position=None if position == "none" else position,
        temperature=jm.ConstantTemperature(10.0 ** -config["scores"]),
        dtype=config["dtype"],
        **{name: config[name] for name in SIZES},
    )
    tokens, query = random_tokens(config), config["n"] - 1
    return build_request(model, tokens, query=query)


def exact_values(
    request: InfluenceRequest, digits: int, chosen: Sequence[int] | None = None
) -> np.ndarray:
    """Returns what is asked of substitutions in many digits, by rerunning the model.

    Two outputs are subtracted, as in `exhaustive`: of a norm that is not 10 digits above
    their rounding nothing is known, and it counts as 0.

    Args:
        request: a question about "activation" or "logits".
        digits: decimal digits of the arithmetic.
        chosen: which of its substitutions; all by default.

    Returns:
        Influences [p], or what a scan reads [p, r, ...], of mpmath's numbers.
    """
    arithmetic = reference.multiprecision(digits)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        jm.save(request.model, path)
        config, tensors = reference.read_file(path)
    run = {"activation": reference.forward, "logits": reference.logits}[request.target]

    def outputs(tokens: np.ndarray) -> np.ndarray:
        # What rounding may decide otherwise is reported of the method, not here.
        return run(config, tensors, tokens, arithmetic, ties="ignore")[request.rows]

    def norms(vectors: np.ndarray) -> Any:
        found = arithmetic.sqrt((vectors * vectors).sum(axis=-1))
        return np.where(found > floor, found, 0 * found)

    base, floor = outputs(request.tokens), 0
    floor = norms(base).max() * arithmetic.numbers(10) ** -(digits - 10)
    changes = []
    for index in range(len(request.pairs)) if chosen is None else chosen:
        tokens = request.tokens.copy()
        tokens[request.position[index]] = request.symbol[index]
        changes.append(outputs(tokens) - base)
    if request.reading is None:
        return norms(np.stack(changes)[:, 0])
    found = choose(np.stack(changes), request.chosen)
    if request.reading.kind == "signed":
        return found
    if request.reading.kind == "largest":
        return abs(found).max(axis=-1)
    return found[..., 0] if found.shape[-1] == 1 else norms(found)


def computed(
    method: Method, request: InfluenceRequest
) -> tuple[np.ndarray, np.ndarray, bool] | None:
    """Returns a method's influences, radii, and whether ties were ambiguous.

    None where it refuses the request.
    """
    if method.refuse(request) is not None:
        return None
    found = compute_values(request, method, RUNS)
    asked = request, found.values, found.moves, found.magnitude
    radii = radii_of(*asked, subtracted=method.subtracts)
    ambiguous = found.ties is not None and found.ties.ambiguous
    return found.values, radii, ambiguous


def compare(
    influence: np.ndarray, radius: np.ndarray, exact: Sequence[Any]
) -> dict[str, float | None]:
    """Returns the largest errors as shares of influence and of radius.

    Args:
        influence: as computed [k].
        radius: as the method states them [k].
        exact: in many digits [k].

    Returns:
        `error`, over those that are not 0, None where all are; and `of_radius`, None
        where a value with radius 0 is wrong.
    """
    errors = [abs(one - float(x)) for one, x in zip(exact, influence, strict=True)]
    relative = [float(e / one) for e, one in zip(errors, exact, strict=True) if one]
    shares = [
        0.0 if not e else float(e / r) if r else None
        for e, r in zip(errors, radius.tolist(), strict=True)
    ]
    known = [share for share in shares if share is not None]
    return {
        # As NumPy takes it, where one is NaN: an error of nothing would be the other.
        "error": float(np.max(relative)) if relative else None,
        "of_radius": float(np.max(known)) if len(known) == len(shares) else None,
    }


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: errors of every method, as shares of influence and of radius."""
    request = build(config)
    found = {method.name: computed(method, request) for method in METHODS}
    first = found[INCREMENTAL.name]
    assert first is not None
    count = request.position.size
    spread = np.linspace(0, count - 1, config["sample"], dtype=int)
    chosen = sorted({int(first[0].argmax()), *spread.tolist()})
    start = time.perf_counter()
    exact = exact_values(request, config["digits"], chosen).tolist()
    row: dict[str, Any] = {
        "influence": float(max(exact)),
        "substitutions": len(chosen),
        "reference_seconds": time.perf_counter() - start,
    }
    for name, answer in found.items():
        row[f"{name}_refused"] = answer is None
        if answer is not None:
            influence, radius, ambiguous = answer
            shares = compare(influence[chosen], radius[chosen], exact)
            row |= {f"{name}_{what}": share for what, share in shares.items()}
            row[f"{name}_ambiguous"] = ambiguous
    return row


def holds(row: Row) -> bool:
    """Whether every radius that a row states holds, where rounding decided no tie."""
    for name in (method.name for method in METHODS):
        if not row[f"{name}_refused"] and not row[f"{name}_ambiguous"]:
            share = row[f"{name}_of_radius"]
            if share is None or not share <= 1:
                return False
    return True


def line(config: Config, row: Row) -> list[str]:
    """Returns one row as cells of the table."""
    position = config["position"]
    shown = [config["dtype"], config["weighting"], position, f"1e{config['scores']}"]
    shown += [str(config["n"]), f"{row['influence']:.3g}"]
    for name in (method.name for method in METHODS):
        for what in ("error", "of_radius"):
            if row[f"{name}_refused"]:
                shown.append("")
            elif row[f"{name}_ambiguous"]:
                shown.append("ambiguous")
            else:
                share = row[f"{name}_{what}"]
                shown.append("-" if share is None else f"{share:.2g}")
    return shown


def show(config: Config, row: Row) -> str:
    """Returns one row as a line."""
    return " ".join(line(config, row)) + ("" if holds(row) else "  radius too small")


def table(measured: Measured) -> str:
    """Returns the rows as a Markdown table."""
    return table_text(HEAD, [line(config, row) for config, row in measured])


def draw(measured: Measured) -> Any:
    """Returns the figure: the largest error of each method against the scores."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.4), layout="constrained")
    panels = figure.subplots(1, 2)
    labels = ("error / influence", "error / stated radius")
    dtypes = list(dict.fromkeys(config["dtype"] for config, _ in measured))
    for axes, what, label in zip(panels, ("error", "of_radius"), labels, strict=True):
        looks = iter(LOOKS)
        for method in METHODS:
            for dtype in dtypes:
                points = worst(measured, method.name, what, dtype)
                if points:
                    look = {**next(looks), "label": f"{method.name}, {dtype}"}
                    axes.plot(*zip(*points, strict=True), **look, markersize=4)
        axes.set(
            xscale="log", yscale="log", xlabel="factor of the scores", ylabel=label
        )
        axes.spines[["top", "right"]].set_visible(False)
    panels[1].axhline(1, color="0.5", linewidth=0.8)
    figure.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3
    )
    return figure


def worst(
    measured: Measured, name: str, what: str, dtype: str
) -> list[tuple[float, float]]:
    """Returns (factor of the scores, largest share) of a method in a float type."""
    found: dict[float, float] = {}
    for config, row in measured:
        share = row.get(f"{name}_{what}")
        # A logarithmic axis has no place for 0, which is no loss either.
        if config["dtype"] == dtype and share and not row[f"{name}_ambiguous"]:
            factor = 10.0 ** config["scores"]
            found[factor] = max(share, found.get(factor, 0.0))
    return sorted(found.items())


BENCHMARK = Benchmark("accuracy", FLAGS, cells, measure, show, table, draw)

if __name__ == "__main__":
    run_script(BENCHMARK)

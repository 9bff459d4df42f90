"""How close does every bound come to the exact influence, and does one fall below it?

Random models of every kind: both forms, all scores and masks, layer norms, temperatures,
biases or none, 1 to 4 heads, scales 0.1 to 3. One cell is an architecture at a length:
several draws of its weights and of an input share what is compiled. Every substitution,
the query's own token included, is compared (beyond n = 1024 those at evenly spaced
positions): with the certificates of the same substitution, and the largest one with the
bounds for all inputs.

A ratio is a bound over the lower end of the exact influence's enclosure, so that one
below 1 would refute the bound. Rows go to results.sqlite in --out; a row that is there
is not measured again. With --docs the table between the marks in that page is replaced.
"""

import math
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import jax_models as jm
from benchmarks.flags import benchmark_flags, define_integers, define_lengths
from benchmarks.page import table_text
from benchmarks.script import Benchmark, Config, Measured, Row, run_script
from bounds import Influence, certify_influence, closed_form_bounds, compute_influence

FLAGS = benchmark_flags("domination", table=True)
LENGTHS = define_lengths(FLAGS, "2,3,8,33,129,1024,4096")
DEPTHS = define_integers(FLAGS, "depths", [1, 2, 3, 4], "numbers of layers L")

# Architectures and draws of each, per number of layers: (up to this length, …).
EFFORTS = ((33, 4, 9), (129, 4, 4), (1024, 3, 2), (4096, 2, 1))
# Beyond it the exact influences of three layers and more take too long.
SHORT = 33
# Beyond it positions are spaced evenly, this many of them.
EVERY_POSITION, POSITIONS = 1024, 64
SCALES = (0.1, 0.3, 0.6, 1.0, 3.0)
WIDTHS: dict[str, Any] = {"d_model": 12, "d_ff": 10, "vocab_size": 3}
FACTORS: dict[str, tuple[Any, ...]] = {
    "mask": ("none", "none", "future", "past", "strict_future", "strict_past"),
    "score": ("dot_product", "scaled_dot_product", "additive"),
    "combine": ("residual", "concat"),
    "layer_norm": ("none", "pre", "post"),
    "layer_norm_epsilon": (1e-5, 0.1),
    "activation": ("relu", "gelu"),
    "temperature": (
        None,
        jm.ConstantTemperature(0.6),
        jm.InverseLogTemperature(1.5),
        jm.PowerTemperature(1.2, -0.2),
    ),
    "biases": (True, False),
    "position": ("sinusoidal", None),
    "final_norm": (False, True),
    "target": ("activation", "logits"),
}
# The factors that are fields of an `Architecture`.
PARTS = ("combine", "layer_norm_epsilon", "activation", "biases", "final_norm")
FORMS = {"corrected": "recursion", "linear": "linear", "c1": "C1", "c2": "C2"}


def draw_architecture(rng: np.random.Generator, index: int) -> dict[str, Any]:
    """Returns random settings that the model format allows, with 1 + index % 4 heads."""
    while True:
        found: dict[str, Any] = {
            name: options[rng.integers(len(options))]
            for name, options in FACTORS.items()
        }
        if found["combine"] == "residual" or found["layer_norm"] == "none":
            return {**found, "num_heads": 1 + index % 4}


def measure(config: Config) -> dict[str, float]:
    """Returns the smallest ratios over a cell's draws, and counts."""
    # Programs here are compiled often and run briefly.
    jax.config.update("jax_disable_most_optimizations", True)
    n, seeds = config["n"], config["seeds"]
    rng = np.random.default_rng([n, config["depth"]])
    drawn = [draw_architecture(rng, index) for index in range(config["index"] + 1)]
    options = {**drawn[-1], "num_layers": config["depth"]}
    target = options.pop("target")
    parts = {name: options.pop(name) for name in PARTS}
    query = 0 if "past" in options["mask"] else n - 1
    rows = []
    for seed in seeds:
        model = jm.random_transformer(
            jax.random.key(seed),
            **options,
            **WIDTHS,
            scale=SCALES[seed % len(SCALES)],
            dtype="float64",
            architecture=jm.Architecture(
                **parts, num_classes=4 if target == "logits" else None, max_length=n
            ),
        )
        tokens = np.random.default_rng(seed).integers(0, WIDTHS["vocab_size"], n)
        rows.append(_compare(model, tokens, query, target))
    found = {name: min(row[name] for row in rows) for name in rows[0]}
    found["models"] = len(seeds)
    found["substitutions"] = sum(row["substitutions"] for row in rows)
    found["centred_of_maximum"] = max(row["centred_of_maximum"] for row in rows)
    # Thousands of programs would take more memory maps than Linux gives.
    jax.clear_caches()
    return found


def _compare(
    model: jm.Transformer, tokens: np.ndarray, query: int, target: Any
) -> dict[str, float]:
    question: dict[str, Any] = {
        "query": query,
        "target": target,
        "include_query": True,
        "positions": _positions(tokens.size, query),
    }
    exact = compute_influence(
        model,
        tokens,
        method="exhaustive" if tokens.size <= SHORT else "incremental",
        **question,
    )
    assert exact.lower is not None
    ratios: dict[str, float] = {"substitutions": exact.substitutions}
    for method in ("centred", "base"):
        found = certify_influence(model, tokens, method=method, **question)
        alone = found.input_upper
        ratios[method] = _least(alone, exact.lower)
        if method == "centred":
            ratios["centred_of_maximum"] = _of_maximum(alone, exact)
    forms = closed_form_bounds(model, tokens.size, query=query, target=target)
    for name in FORMS:
        form = getattr(forms, name)
        ratios[name] = math.inf
        if form is not None:
            values = np.array([form.others.value, form.own.value])
            assert exact.position_lower is not None
            lower = np.array([_largest(exact), exact.position_lower[query]])
            ratios[name] = _least(values, lower)
    return ratios


def _positions(n: int, query: int) -> list[int] | None:
    if n <= EVERY_POSITION:
        return None
    spaced = np.linspace(0, n - 1, POSITIONS).round().astype(int)
    return sorted({*spaced.tolist(), query})


def _of_maximum(upper: np.ndarray, exact: Influence) -> float:
    """Largest certificate over the upper end of the largest influence; 1 if that is 0."""
    assert exact.upper is not None
    found, largest = (
        float(np.nanmax(np.delete(x, exact.query, axis=0)))
        for x in (upper, exact.upper)
    )
    return found / largest if largest > 0 else 1.0


def _largest(exact: Influence) -> float:
    """Lower end of the largest influence of any position but the query's."""
    assert exact.position_lower is not None
    return float(np.nanmax(np.delete(exact.position_lower, exact.query)))


def _least(bounds: np.ndarray, lower: np.ndarray) -> float:
    """Smallest ratio of a bound to a lower end, over lower ends above 0."""
    told = lower > 0
    return float(np.min(bounds[told] / lower[told], initial=math.inf))


def table(measured: Measured) -> str:
    """Returns, per depth over all lengths, the smallest ratios as a Markdown table."""
    rows = [{**config, **row} for config, row in measured]
    head = ["L", "n", "models", "substitutions", "centred - 1", "centred, loosest"]
    head += ["base", *FORMS.values()]
    lines = []
    for depth in sorted({row["depth"] for row in rows}):
        these = [row for row in rows if row["depth"] == depth]
        ends = sorted({row["n"] for row in these})
        lengths = " to ".join(str(n) for n in dict.fromkeys((ends[0], ends[-1])))
        models, pairs = (
            sum(row[name] for row in these) for name in ("models", "substitutions")
        )
        loosest = max(row["centred_of_maximum"] for row in these)
        smallest = [
            # A store has no infinity: null is a form that does not apply.
            min(math.inf if row[name] is None else row[name] for row in these)
            for name in ("base", *FORMS)
        ]
        numbers = [_number(x) for x in (loosest, *smallest)]
        centred = f"{min(row['centred'] for row in these) - 1:.1e}"
        lines.append([str(depth), lengths, str(models), str(pairs), centred, *numbers])
    return table_text(head, lines)


def _number(ratio: float) -> str:
    if math.isinf(ratio):
        return ""
    return f"{ratio:.3f}" if ratio < 100 else f"{ratio:.1e}"


def show(config: Config, row: Row) -> str:
    """Returns one measured row as a line of the table."""
    return table([(config, row)]).splitlines()[-1]


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries; architectures are drawn in this order."""
    for n in LENGTHS.value:
        architectures, count = next(x[1:] for x in EFFORTS if n <= x[0])
        for depth in DEPTHS.value:
            if depth > 2 and n > SHORT:
                continue
            rng = np.random.default_rng([n, depth])
            for index in range(architectures):
                architecture = draw_architecture(rng, index)
                seeds = range(index * count + depth, (index + 1) * count + depth)
                yield {
                    "architecture": {k: repr(v) for k, v in architecture.items()},
                    "index": index,
                    "n": n,
                    "depth": depth,
                    "seeds": list(seeds),
                }


BENCHMARK = Benchmark("domination", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)

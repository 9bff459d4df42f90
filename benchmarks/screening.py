"""Where does the screen close, and what does it cost in forward passes?

For softmax transformers, random ones and one trained on 2DYCK in the run, the maximum
influence is screened as a user would ask for it, and every level of the ladder is reported:
substitutions screened, left, and the cost of screening all substitutions at that level, as a
multiple of one forward pass of the same model timed before and after in the same process.
Compilation is apart: a level's cost is that of its blocks after the first; the base pass is
timed warm. Rows go to results.sqlite in --out; a row that is there is not measured again.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from benchmarks.flags import (
    benchmark_flags,
    define_choices,
    define_lengths,
    define_masks,
    define_seeds,
)
from benchmarks.page import column_table, digits
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.subject import SIZES, random_model, random_tokens
from benchmarks.timing import time_call
from bounds import Screened
from bounds.influence import compute_influence
from bounds.influence.screening.screen import prepare_envelopes, prepare_screen
from jax_models import (
    Architecture,
    InputError,
    Transformer,
    forward,
    init_transformer,
    with_dtype,
)
from jax_models.languages import get_source
from jax_models.model.layer import NORM_PLACEMENTS
from jax_models.training import Training, train

# What is learnt, the probability of an opening bracket there, and how.
TRAINED, PROBABILITY = "dyck2", 0.25
TRAINING = Training(40, 2000, batch_size=32, all_positions=True)

FLAGS = benchmark_flags("screening", table=True)
LENGTHS = define_lengths(FLAGS, "2048,4096,10000")
MODELS = flags.DEFINE_list(
    "models",
    ["3@0.5", "3@0.7", "4@0.5"],
    "layers and weight scale, L@scale; L@dyck2 is trained, and causal whatever --masks",
    flag_values=FLAGS,
)
NORMS = define_choices(
    FLAGS, "layer_norms", ["none"], NORM_PLACEMENTS, "placements of layer norm"
)
MASKS = define_masks(FLAGS, "none")
SEEDS = define_seeds(FLAGS, [0])
EVALUATIONS = flags.DEFINE_integer(
    "budget",
    16,
    "exact evaluations; 0 enumerates whatever the levels leave",
    lower_bound=0,
    flag_values=FLAGS,
)


def subject(config: Config) -> tuple[Transformer, np.ndarray]:
    """Returns the model of a config, random or trained, and its input [n]."""
    if "trained" not in config:
        return random_model(config), random_tokens(config)
    source, seed = get_source(config["trained"], PROBABILITY), config["seed"]
    first = init_transformer(
        jax.random.key(seed),
        num_layers=config["layers"],
        **{name: config[name] for name in (*SIZES, "mask", "layer_norm")},
        architecture=Architecture(num_classes=source.num_classes),
    )
    model, _ = train(first, source, TRAINING, jax.random.key(seed + 1))
    tokens = source.sample(jax.random.key(seed + 2), config["n"], 1)[0]
    return with_dtype(model, config["dtype"]), np.asarray(tokens, np.int32)


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: the enclosure, evaluated and open counts, and each level's costs."""
    n, (model, given) = config["n"], subject(config)
    tokens = jnp.asarray(given)
    run = jax.jit(lambda m, x: forward(m, x)[0])

    def passes() -> float:
        return time_call(lambda: run(model, tokens), repeats=5, budget=10).median

    before = passes()
    found = compute_influence(
        model, np.asarray(tokens), method=Screened(budget=config["budget"] or None)
    )
    base = prepare_screen(model, tokens, n - 1, "activation")
    prepared = time_call(
        lambda: prepare_screen(model, tokens, n - 1, "activation"), repeats=1, budget=0
    ).median
    one = (before + passes()) / 2
    row: dict[str, Any] = {
        "max_lower": found.max_lower,
        "max_upper": found.max_upper,
        "evaluated": found.evaluated,
        "uncertified": found.uncertified,
        "screen_seconds": found.seconds,
        "forward_seconds": one,
        "base_passes": prepared / one,
    }
    for k, level in enumerate(found.levels):
        envelopes = time_call(
            lambda level=level: prepare_envelopes(
                model, base, level.groups, level.rank
            ),
            repeats=1,
            budget=0,
        ).median
        row |= {
            f"level_{k}_groups": level.groups,
            f"level_{k}_rank": level.rank,
            f"level_{k}_screened": level.screened,
            f"level_{k}_left": level.left,
            f"level_{k}_envelope_passes": envelopes / one,
        }
        if level.seconds_each is not None:
            row[f"level_{k}_passes"] = level.seconds_each * found.substitutions / one
    jax.clear_caches()  # the programs of one model serve no other
    return row


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    levels, k = [], 0
    while f"level_{k}_groups" in row:
        groups, rank, screened, left, envelopes = (
            row[f"level_{k}_{name}"]
            for name in ("groups", "rank", "screened", "left", "envelope_passes")
        )
        each = row.get(f"level_{k}_passes")
        passes = "one block" if each is None else f"{each:.3g} passes"
        levels.append(
            f"G {groups} r {rank}: {screened} -> {left}, {envelopes:.3g} + {passes}"
        )
        k += 1
    width = row["max_upper"] / row["max_lower"] - 1
    return (
        f"L = {config['layers']}  weights {weights(config)}  norm {config['layer_norm']}  "
        f"mask {config['mask']}  n = {config['n']}  seed {config['seed']}: "
        f"width {width:.2g}, {row['evaluated']} evaluated, {row['uncertified']} left; "
        f"{row['screen_seconds']:.4g} s, forward pass {row['forward_seconds']:.3g} s, base "
        f"{row['base_passes']:.3g} passes; {'; '.join(levels)}"
    )


def weights(config: Config) -> str:
    """Returns the scale of a config's random weights, or the source of trained ones."""
    return str(config.get("scale", config.get("trained")))


def read_model(name: str) -> dict[str, Any]:
    """Returns the config's entries that an entry of --models names."""
    layers, _, kind = name.partition("@")
    try:
        if kind == TRAINED:
            source = get_source(TRAINED, PROBABILITY)
            symbols = {"vocab_size": len(source.symbols)}
            return {**SIZES, "layers": int(layers), "trained": kind, **symbols}
        return {**SIZES, "layers": int(layers), "scale": float(kind)}
    except ValueError:
        raise InputError(
            f"--models: {name!r} is not of the form L@scale, as in 3@0.5, or L@{TRAINED}"
        ) from None


def table(measured: Measured) -> str:
    """Returns a Markdown table of the rows, with the open count and cost of each level."""

    def level(k: int) -> Callable[[Config, Row], str]:
        def text(_: Config, row: Row) -> str:
            if f"level_{k}_left" not in row:
                return ""
            passes = row.get(f"level_{k}_passes")
            cost = "one block" if passes is None else f"{digits(passes)} passes"
            return f"{row[f'level_{k}_left']} left, {cost}"

        return text

    levels = max(
        k for _, row in measured for k in range(9) if k == 0 or f"level_{k}_left" in row
    )
    return column_table(
        {
            "L": lambda config, _: str(config["layers"]),
            "scale": lambda config, _: weights(config),
            "layer norm": lambda config, _: config["layer_norm"],
            "mask": lambda config, _: config["mask"],
            "n": lambda config, _: str(config["n"]),
            "result": lambda _, row: "open" if row["uncertified"] else "closed",
            "evaluated": lambda _, row: str(row["evaluated"]),
            "seconds with compiling": lambda _, row: digits(row["screen_seconds"]),
            "base, passes": lambda _, row: digits(row["base_passes"]),
            **{f"level {k + 1}": level(k) for k in range(levels + 1)},
        },
        measured,
    )


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries: model, layer norm, mask, length and seed."""
    for model in map(read_model, MODELS.value):
        for cell in grid(
            layer_norm=NORMS.value,
            mask=["future"] if "trained" in model else MASKS.value,
            n=LENGTHS.value,
            seed=SEEDS.value,
        ):
            yield {**cell, **model}


BENCHMARK = Benchmark("screening", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)

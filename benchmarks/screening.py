"""Where does the screen close, and what does it cost in forward passes?

For random softmax transformers the maximum influence is screened as a user would ask for
it, and every level of the ladder is reported: substitutions screened, left, and the cost
of screening all substitutions at that level, as a multiple of one forward pass of the same
model timed before and after in the same process. Compilation is apart: a level's cost is
that of its blocks after the first; the base pass is timed warm. Rows go to results.sqlite
in --out; a row that is there is not measured again.
"""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from benchmarks.cells import find_or_measure
from benchmarks.timing import time_call
from bounds.influence import compute_influence
from bounds.influence.screening.screen import prepare_envelopes, prepare_screen
from bounds.store import ResultStore
from jax_models import forward, random_transformer

LENGTHS = flags.DEFINE_list("lengths", ["2048", "4096", "10000"], "lengths n")
MODELS = flags.DEFINE_list(
    "models", ["3@0.5", "3@0.7", "4@0.5"], "layers and weight scale, L@scale"
)
NORMS = flags.DEFINE_list("layer_norms", ["none"], "placements of layer norm")
MASKS = flags.DEFINE_list("masks", ["none"], "attention masks")
SEEDS = flags.DEFINE_list("seeds", ["0"], "seeds of the models")
BUDGET = flags.DEFINE_integer("budget", 16, "exact evaluations", lower_bound=1)
OUT = flags.DEFINE_string("out", "results/screening", "folder of the store")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")

SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 16, "d_ff": 32, "vocab_size": 2}


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one row: the enclosure, what was evaluated and left, the levels' costs."""
    n, seed = config["n"], config["seed"]
    model = random_transformer(
        jax.random.key(seed),
        num_layers=config["layers"],
        scale=config["scale"],
        layer_norm=config["layer_norm"],
        mask=config["mask"],
        dtype="float64",
        **SIZES,
    )
    inputs = jax.random.randint(jax.random.key(seed + 1), (n,), 0, SIZES["vocab_size"])
    tokens = jnp.asarray(inputs, jnp.int32)
    run = jax.jit(lambda m, x: forward(m, x)[0])

    def passes() -> float:
        return time_call(lambda: run(model, tokens), repeats=5, budget=10).median

    before = passes()
    found = compute_influence(
        model, np.asarray(tokens), method="screened", budget=config["budget"]
    )
    base = prepare_screen(model, tokens, n - 1, "activation")
    prepared = time_call(
        lambda: prepare_screen(model, tokens, n - 1, "activation"), repeats=1, budget=0
    ).median
    one = (before + passes()) / 2
    row: dict[str, Any] = {
        "kind": found.kind,
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
    return row


def show(config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Prints one row as a line."""
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
    print(
        f"L = {config['layers']}  scale {config['scale']}  norm {config['layer_norm']}  "
        f"mask {config['mask']}  n = {config['n']}  seed {config['seed']}: {row['kind']}, "
        f"width {width:.2g}, {row['evaluated']} evaluated, {row['uncertified']} left; "
        f"{row['screen_seconds']:.4g} s, forward pass {row['forward_seconds']:.3g} s, base "
        f"{row['base_passes']:.3g} passes; {'; '.join(levels)}",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    """Measures every cell that the store does not hold, and prints all of them."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    cells = [
        (*model.split("@"), norm, mask, int(n), int(seed))
        for model in MODELS.value
        for norm in NORMS.value
        for mask in MASKS.value
        for n in LENGTHS.value
        for seed in SEEDS.value
    ]
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for layers, scale, norm, mask, n, seed in cells:
            config = {
                "command": "screening",
                "device": str(jax.devices()[0].device_kind),
                "dtype": "float64",
                "budget": BUDGET.value,
                "layers": int(layers),
                "scale": float(scale),
                "layer_norm": norm,
                "mask": mask,
                "n": n,
                "seed": seed,
                **SIZES,
            }
            row = find_or_measure(
                store, config, functools.partial(measure, config), fresh=FRESH.value
            )
            show(config, row)
            jax.clear_caches()


if __name__ == "__main__":
    app.run(main)

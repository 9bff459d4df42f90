"""How many rows does one symbol change in a hard transformer, and what does that cost?

Follows all substitutions of one input through a random model whose layers are hard, and
reports per layer the distribution of the number of changed rows, and the seconds of the
whole sweep as a multiple of one forward pass of the same model, timed before and after
it in the same process. Everything is warm: the sweep runs once before it is timed. Rows
go to results.sqlite in --out; a row that is there is not measured again.
"""

import functools
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from benchmarks.cells import find_or_measure
from benchmarks.timing import time_call
from bounds.influence.base import Problem
from bounds.influence.change_block import prepare
from bounds.influence.incremental import follow
from bounds.influence.substitution import list_substitutions
from bounds.store import ResultStore
from jax_models import forward, random_transformer

LENGTHS = flags.DEFINE_list("lengths", ["10000"], "lengths n")
LAYERS = flags.DEFINE_integer("layers", 3, "number of layers L", lower_bound=3)
WEIGHTINGS = flags.DEFINE_list(
    "weightings", ["leftmost_hard", "rightmost_hard", "average_hard"], "weightings"
)
MASKS = flags.DEFINE_list("masks", ["none", "future"], "attention masks")
SEEDS = flags.DEFINE_list("seeds", ["0"], "seeds of the models")
OUT = flags.DEFINE_string("out", "results/changed_rows", "folder of the store")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")

SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 16, "d_ff": 32, "vocab_size": 2}


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one row: quantiles of the changed rows per layer, seconds, the ratio."""
    n, seed = config["n"], config["seed"]
    model = random_transformer(
        jax.random.key(seed),
        num_layers=config["layers"],
        weighting=config["weighting"],
        mask=config["mask"],
        dtype="float64",
        **SIZES,
    )
    inputs = jax.random.randint(jax.random.key(seed + 1), (n,), 0, SIZES["vocab_size"])
    tokens = np.asarray(inputs, np.int32)
    pairs = list_substitutions(tokens, SIZES["vocab_size"], query=n - 1)
    problem = Problem(model, tokens, n - 1, "activation", pairs.position, pairs.symbol)
    run = jax.jit(lambda m, x: forward(m, x)[0])

    def passes() -> float:
        return time_call(
            lambda: run(model, jnp.asarray(tokens)), repeats=5, budget=20
        ).median

    def sweep() -> Any:
        state = prepare(model, jnp.asarray(tokens), problem.query)
        return list(follow(problem, state))

    start = time.perf_counter()
    sweep()
    first = time.perf_counter() - start
    before, start = passes(), time.perf_counter()
    windows = sweep()
    seconds = time.perf_counter() - start
    after = passes()
    row: dict[str, Any] = {
        "substitutions": len(pairs),
        "sweep_seconds": seconds,
        "sweep_first_seconds": first,
        "forward_seconds": before,
        "forward_seconds_after": after,
        "forward_passes": 2 * seconds / (before + after),
    }
    for k, sizes in enumerate(np.concatenate([w.sizes for w in windows], axis=1)):
        for name, share in (("min", 0), ("median", 0.5), ("90", 0.9), ("max", 1)):
            row[f"changed_{k + 1}_{name}"] = float(np.quantile(sizes, share))
        row[f"changed_{k + 1}_mean"] = float(sizes.mean())
    return row


def show(config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Prints one row as a line."""
    layers = "; ".join(
        f"layer {k}: "
        + " / ".join(
            f"{row[f'changed_{k}_{name}']:.4g}"
            for name in ("min", "median", "90", "max", "mean")
        )
        for k in range(1, config["layers"])
    )
    print(
        f"n = {config['n']}  {config['weighting']}  mask {config['mask']}  "
        f"seed {config['seed']}: {row['sweep_seconds']:.4g} s = "
        f"{row['forward_passes']:.3g} forward passes (before "
        f"{row['forward_seconds']:.3g} s, after {row['forward_seconds_after']:.3g} s); "
        f"changed rows, min / median / 90 % / max / mean, {layers}",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    """Measures every cell that the store does not hold, and prints all of them."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    cells = [
        (int(n), weighting, mask, int(seed))
        for n in LENGTHS.value
        for weighting in WEIGHTINGS.value
        for mask in MASKS.value
        for seed in SEEDS.value
    ]
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for n, weighting, mask, seed in cells:
            config = {
                "command": "changed_rows",
                "device": str(jax.devices()[0].device_kind),
                "dtype": "float64",
                "layers": LAYERS.value,
                "mask": mask,
                "n": n,
                "seed": seed,
                "weighting": weighting,
                **SIZES,
            }
            row = find_or_measure(
                store, config, functools.partial(measure, config), fresh=FRESH.value
            )
            show(config, row)


if __name__ == "__main__":
    app.run(main)

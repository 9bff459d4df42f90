"""How long does a forward pass take, and how much memory?

Times one forward pass over all rows, per float type, weighting and length, with the
peak memory of the process (its resident set; on an accelerator the device's own count
besides) and that before the first pass. Attention runs by blocks of summaries, so memory
should grow like n and not like n^2. Lengths go upwards, so that a peak belongs to the
length it is reported with. With --num_devices rows and keys are shared out over as many
devices, which a CPU is divided into; the process holds what all of them hold. Rows go to
results.sqlite in --out; a row that is there is not measured again.
"""

import functools
import resource
import sys
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from absl import app, flags

from benchmarks.cells import find_or_measure
from benchmarks.timing import time_call
from bounds.store import ResultStore
from jax_models import apply, device_mesh, forward, random_transformer

LENGTHS = flags.DEFINE_list("lengths", ["1024", "10000", "100000"], "lengths n")
DTYPES = flags.DEFINE_list("dtypes", ["float64"], "float types")
WEIGHTINGS = flags.DEFINE_list("weightings", ["softmax"], "weighting functions")
MASK = flags.DEFINE_string("mask", "none", "attention mask")
NUM_DEVICES = flags.DEFINE_integer(
    "num_devices", None, "devices that rows and keys are shared out over", lower_bound=1
)
LAYERS = flags.DEFINE_integer("layers", 2, "number of layers L", lower_bound=1)
BUDGET = flags.DEFINE_float("budget", 10.0, "seconds for each timing", lower_bound=0)
REPEATS = flags.DEFINE_integer("repeats", 5, "timed calls at most", lower_bound=1)
OUT = flags.DEFINE_string("out", "results/forward_pass", "folder of the store")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")

SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 16, "d_ff": 32, "vocab_size": 2}


def peak_resident_bytes() -> int:
    """Returns the largest resident set that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one row: seconds of a pass, compile time, and peak memory."""
    model = random_transformer(
        jax.random.key(0),
        num_layers=config["layers"],
        weighting=config["weighting"],
        mask=config["mask"],
        dtype=jnp.dtype(config["dtype"]),
        **SIZES,
    )
    tokens = jax.random.randint(jax.random.key(1), (config["n"],), 0, 2)
    before = peak_resident_bytes()
    if NUM_DEVICES.value is None:
        run = jax.jit(lambda model, tokens: forward(model, tokens)[0])
    else:
        mesh = device_mesh(NUM_DEVICES.value)
        run = functools.partial(apply, ties="ignore", mesh=mesh)
    timing = time_call(
        lambda: run(model, tokens), repeats=REPEATS.value, budget=BUDGET.value
    )
    memory = jax.devices()[0].memory_stats() or {}
    return {
        **timing.columns("forward"),
        "calls": timing.calls,
        "before_bytes": before,
        "peak_bytes": peak_resident_bytes(),
        "peak_device_bytes": memory.get("peak_bytes_in_use"),
    }


def show(config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Prints one row as a line."""
    print(
        f"n = {config['n']:>6}  {config['dtype']}  {config['weighting']}: "
        f"{row['forward_seconds']:.4g} s, peak memory "
        f"{row['peak_bytes'] / 2**30:.2f} GiB ({row['before_bytes'] / 2**30:.2f} before)",
        flush=True,
    )


def main(arguments: list[str]) -> None:
    """Measures every cell that the store does not hold, and prints all of them."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    jax.config.update("jax_enable_x64", True)
    if NUM_DEVICES.value is not None:
        jax.config.update("jax_num_cpu_devices", NUM_DEVICES.value)
    cells = [
        (n, dtype, weighting)
        for n in sorted(map(int, LENGTHS.value))
        for dtype in DTYPES.value
        for weighting in WEIGHTINGS.value
    ]
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for n, dtype, weighting in cells:
            config = {
                "command": "forward_pass",
                "device": str(jax.devices()[0].device_kind),
                "dtype": dtype,
                "layers": LAYERS.value,
                "mask": MASK.value,
                "n": n,
                "num_devices": NUM_DEVICES.value,
                "seed": 0,
                "weighting": weighting,
                **SIZES,
            }
            row = find_or_measure(
                store, config, functools.partial(measure, config), fresh=FRESH.value
            )
            show(config, row)


if __name__ == "__main__":
    app.run(main)

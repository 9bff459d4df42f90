"""What does the import of a checkpoint take, beside reading its file?

A checkpoint of BERT's base size with random weights, written to a temporary folder, is read
by safetensors into arrays and imported by `from_pretrained` in its own type, each in fresh
processes in turn, start-up apart: the file lies in the page cache for both. Memory is the
most that a process has held less what it held before, as a share of the file's bytes.
"""

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from benchmarks.flags import benchmark_flags, define_integers
from benchmarks.page import digits, table_text
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from jax_models import InputError

FLAGS = benchmark_flags("import_cost", repeats=5, table=True)
LAYERS = define_integers(FLAGS, "layers", [12], "numbers of layers L")
SIZES: dict[str, Any] = {"width": 768, "hidden": 3072, "heads": 12, "vocab": 30522}
WAYS = {
    "read": """
from safetensors.numpy import load_file
def work():
    return load_file(folder + "/model.safetensors")
""",
    "import": """
import jax, jax_models, jax_models.format.pretrained.load
jax.numpy.zeros(1).block_until_ready()
def work():
    return jax.block_until_ready(jax_models.from_pretrained(folder))
""",
}
# VmHWM is the most that this process held, not what started it.
CHILD = """
import json, sys, time
folder = sys.argv[1]
def held(what):
    lines = open("/proc/self/status").read().splitlines()
    (line,) = [line for line in lines if line.startswith(what)]
    return 1024 * int(line.split()[1])
@WAY@
before, start = held("VmRSS"), time.perf_counter()
found = work()
seconds = time.perf_counter() - start
print(json.dumps([seconds, held("VmHWM") - before]))
"""


def cells() -> Iterator[dict[str, Any]]:
    """Yields what the rows differ in."""
    if not Path("/proc/self/status").exists():
        print("skipped: there is no /proc, which says what memory a process holds")
        return
    for cell in grid(layers=LAYERS.value):
        yield {**cell, **SIZES, "family": "bert", "dtype": "float32"}


def write_checkpoint(folder: Path, config: Config) -> int:
    """Writes a checkpoint of random weights; returns the bytes of its tensors.

    Args:
        folder: where.
        config: of the row.
    """
    width, hidden = config["width"], config["hidden"]
    shapes: dict[str, tuple[int, ...]] = {}

    def put(name: str, *shape: int) -> None:
        shapes[f"{name}.weight"] = shape
        shapes[f"{name}.bias"] = shape[:1]

    for name, rows in (("word", config["vocab"]), ("position", 512), ("token_type", 2)):
        shapes[f"embeddings.{name}_embeddings.weight"] = rows, width
    put("embeddings.LayerNorm", width)
    for at in range(config["layers"]):
        layer = f"encoder.layer.{at}"
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            put(f"{layer}.attention.{part}", width, width)
        put(f"{layer}.attention.output.LayerNorm", width)
        put(f"{layer}.intermediate.dense", hidden, width)
        put(f"{layer}.output.dense", width, hidden)
        put(f"{layer}.output.LayerNorm", width)
    draw = np.random.default_rng(config["seed"]).standard_normal
    tensors = {
        name: draw(shape, np.dtype(config["dtype"])) for name, shape in shapes.items()
    }
    save_file(tensors, folder / "model.safetensors")
    said = {
        "model_type": "bert",
        "architectures": ["BertModel"],
        "vocab_size": config["vocab"],
        "hidden_size": width,
        "intermediate_size": hidden,
        "num_hidden_layers": config["layers"],
        "num_attention_heads": config["heads"],
        "max_position_embeddings": 512,
        "type_vocab_size": 2,
        "hidden_act": "gelu",
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
    }
    (folder / "config.json").write_text(json.dumps(said))
    return sum(tensor.nbytes for tensor in tensors.values())


def run_once(way: str, folder: Path) -> tuple[float, int]:
    """Returns the seconds that a fresh process takes, and the bytes it held beyond its own.

    Args:
        way: a name in `WAYS`.
        folder: of the checkpoint.

    Raises:
        InputError: it failed.
    """
    program = CHILD.replace("@WAY@", WAYS[way])
    command = [sys.executable, "-c", program, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise InputError(f"{way} of {folder} failed: {ended.stderr[-500:]}")
    seconds, held = json.loads(ended.stdout.splitlines()[-1])
    return seconds, held


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: medians of seconds and memory, and their ratios.

    Raises:
        InputError: A process failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = write_checkpoint(folder, config)
        for way in WAYS:  # once before it counts: the file is in the page cache
            run_once(way, folder)
        pairs = [
            {way: run_once(way, folder) for way in WAYS}
            for _ in range(config["repeats"])
        ]
    row: dict[str, Any] = {"bytes": size}
    for way in WAYS:
        seconds = [pair[way][0] for pair in pairs]
        row[f"{way}_seconds"] = statistics.median(seconds)
        row[f"{way}_fastest"], row[f"{way}_slowest"] = min(seconds), max(seconds)
        row[f"{way}_memory"] = max(pair[way][1] for pair in pairs) / size
    ratios = [pair["import"][0] / pair["read"][0] for pair in pairs]
    row["ratio"], row["ratio_slowest"] = statistics.median(ratios), max(ratios)
    return row


HEAD = (
    *("L", "MB", "read s", "import s", "import / read", "slowest"),
    *("memory / bytes", "of reading"),
)


def line(config: Config, row: Row) -> list[str]:
    """Returns one row as cells of the table."""
    return [
        str(config["layers"]),
        f"{row['bytes'] / 1e6:.0f}",
        digits(row["read_seconds"]),
        digits(row["import_seconds"]),
        digits(row["ratio"]),
        digits(row["ratio_slowest"]),
        digits(row["import_memory"]),
        digits(row["read_memory"]),
    ]


def show(config: Config, row: Row) -> str:
    """Returns one row as a line."""
    return (
        f"L = {config['layers']}, {row['bytes'] / 1e6:.0f} MB: read in "
        f"{row['read_seconds']:.3g} s, imported in {row['import_seconds']:.3g} s, "
        f"{row['ratio']:.3g} times ({row['ratio_slowest']:.3g} at most), with "
        f"{row['import_memory']:.3g} times its bytes in memory"
    )


def table(measured: Measured) -> str:
    """Returns the rows as a Markdown table."""
    return table_text(HEAD, [line(config, row) for config, row in measured])


BENCHMARK = Benchmark("import_cost", FLAGS, cells, measure, show, table)

if __name__ == "__main__":
    run_script(BENCHMARK)

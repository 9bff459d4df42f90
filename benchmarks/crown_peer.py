"""How tight is a general verifier, CROWN, on the substitution of one symbol?

For the same model and substitution: the exact influence, the certificate of this
project, and the bound that auto_LiRPA's CROWN gives. CROWN bounds the output on the whole
segment between the two embeddings and knows no more than intervals of each intermediate
value; the certificate compares the two ends. auto_LiRPA and PyTorch are optional: where
--peer_python, an interpreter that has them (this one by default), does not, the script
says so and ends. Rows go to results.sqlite in --out.
"""

import functools
import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import app, flags

import benchmarks
import jax_models as jm
from benchmarks.page import row_text, table_text
from benchmarks.peer import ask_peer, missing_packages, named_weights
from benchmarks.script import find_or_measure
from bounds import certify_influence, compute_influence
from bounds.store.results import ResultStore
from jax_models.model.transformer import embed

LENGTHS = flags.DEFINE_list("lengths", ["16", "32", "64"], "lengths n")
LAYERS = flags.DEFINE_list("layers", ["1", "2"], "numbers of layers L")
SCALE = flags.DEFINE_float("scale", 0.5, "scale of the weights")
PEER = flags.DEFINE_string("peer_python", sys.executable, "interpreter with auto_LiRPA")
LIMIT = flags.DEFINE_float("limit", 300.0, "seconds for each bound of the peer")
OUT = flags.DEFINE_string("out", "results/crown_peer", "folder of the store")
FRESH = flags.DEFINE_bool("fresh", False, "measure again what the store holds")

SEED = 0
HEAD = ("L", "n", "exact", "centred /", "base /", "CROWN /", "CROWN seconds")
SIZES: dict[str, Any] = {"num_heads": 2, "d_model": 8, "d_ff": 16, "vocab_size": 2}
TORCH_PART = Path(benchmarks.__path__[0]) / "crown_torch.py"


def question(model: jm.Transformer, tokens: np.ndarray, at: int, to: int) -> dict:
    """Returns the embedded rows, the direction of a substitution, and the weights by name."""
    embedding = np.asarray(model.embedding)
    rows = np.asarray(embed(model, jax.numpy.asarray(tokens)))
    direction = np.zeros_like(rows)
    direction[at] = embedding[to] - embedding[tokens[at]]
    arrays: dict[str, Any] = {"rows": rows, "direction": direction}
    return arrays | named_weights(model)


def measure(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns one row: exact, certified and CROWN's bound of one substitution."""
    model = jm.random_transformer(
        jax.random.key(SEED),
        num_layers=config["layers"],
        scale=config["scale"],
        dtype="float64",
        **SIZES,
    )
    n = config["n"]
    tokens = np.asarray(jax.random.randint(jax.random.key(1), (n,), 0, 2), np.int32)
    exact = compute_influence(model, tokens)
    assert exact.position is not None and exact.symbol is not None
    where: dict[str, Any] = {"positions": [exact.position], "symbols": [exact.symbol]}
    row: dict[str, Any] = {"exact": exact.max, "position": exact.position}
    for method in ("centred", "base"):
        found = certify_influence(model, tokens, method=method, **where)
        row[method] = float(np.nanmax(found.input_upper))
    asked = question(model, tokens, exact.position, exact.symbol)
    answer = ask_peer(PEER.value, TORCH_PART, asked, LIMIT.value)
    if "error" in answer:
        return {**row, "crown": None, "crown_error": answer["error"]}
    # The two implementations must be of one model.
    if not math.isclose(answer["ends"], exact.max, rel_tol=1e-8):
        raise RuntimeError(f"the peer's model differs: {answer['ends']} != {exact.max}")
    return {
        **row,
        "crown": answer["bound"] if math.isfinite(answer["bound"]) else None,
        "crown_seconds": answer["seconds"],
        "torch": answer["torch"],
    }


def show(config: Mapping[str, Any], row: Mapping[str, Any]) -> None:
    """Prints one row as a line of a Markdown table."""
    ratios = [
        "-" if row[name] is None else f"{row[name] / row['exact']:.3g}"
        for name in ("centred", "base", "crown")
    ]
    seconds = row.get("crown_seconds")
    note = row.get("crown_error", "" if seconds is None else f"{seconds:.1f}")
    cells = [str(config["layers"]), str(config["n"]), f"{row['exact']:.3e}", *ratios]
    print(row_text([*cells, note]), flush=True)


def main(arguments: list[str]) -> None:
    """Measures every cell that the store does not hold, and prints all of them."""
    if len(arguments) > 1:
        raise app.UsageError(f"unexpected arguments {arguments[1:]}")
    if (reason := missing_packages(PEER.value, "torch, auto_LiRPA")) is not None:
        print(
            f"skipped: {PEER.value} has no auto_LiRPA ({reason}); install torch and "
            "auto_LiRPA there, or name another interpreter with --peer_python"
        )
        return
    jax.config.update("jax_enable_x64", True)
    print(table_text(HEAD, []))
    with ResultStore(f"{OUT.value}/results.sqlite") as store:
        for layers in map(int, LAYERS.value):
            for n in map(int, LENGTHS.value):
                config = {
                    "command": "crown_peer",
                    "dtype": "float64",
                    "layers": layers,
                    "n": n,
                    "scale": SCALE.value,
                    "seed": SEED,
                    **SIZES,
                }
                row = find_or_measure(
                    store, config, functools.partial(measure, config), fresh=FRESH.value
                )
                show(config, row)


if __name__ == "__main__":
    app.run(main)

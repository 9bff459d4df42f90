"""The part of the PyTorch comparison that runs on PyTorch and NumPy alone.

Run by `benchmarks.torch_peer`, possibly with another interpreter: no package of this
repository is imported, and a question is a NumPy archive. It is what one would write
without a method: rerun the model for every substitution, one at a time or in batches, and
subtract. The last layer is computed for the query row only.
"""

import json
import statistics
import sys
import time

import numpy as np
import torch  # pyright: ignore[reportMissingImports]


def forward(archive, rows, query, last_only):
    """Returns the last activations of inputs [b, n, d]: softmax, no mask, ReLU."""
    depth = archive["num_layers"]
    for number in range(depth):
        get = lambda name, number=number: archive[f"{number}.{name}"]
        alone = last_only and number == depth - 1
        wanted = rows[:, query : query + 1] if alone else rows
        parts = (("query", wanted), ("key", rows), ("value", rows))
        q, k, v = (
            torch.einsum("bnd,hed->bhne", source, get(name))
            + get(f"{name}_bias")[:, None]
            for name, source in parts
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        heads = torch.softmax(scores, dim=-1) @ v
        joined = heads.transpose(1, 2).flatten(2)
        c = wanted + joined @ get("output").T + get("output_bias")
        hidden = torch.relu(c @ get("w1").T + get("b1"))
        rows = c + hidden @ get("w2").T + get("b2")
    return rows


def influences(archive, positions, symbols, batch):
    """Returns the norms of the output's change for substitutions [p], by rerunning."""
    rows, embedding, tokens = archive["rows"], archive["embedding"], archive["tokens"]
    query = archive["query"]
    base = forward(archive, rows[None], query, True)
    found = []
    for start in range(0, len(positions), batch):
        at, to = positions[start : start + batch], symbols[start : start + batch]
        inputs = rows.repeat(len(at), 1, 1)
        inputs[torch.arange(len(at)), at] += embedding[to] - embedding[tokens[at]]
        change = forward(archive, inputs, query, True)[:, 0] - base[0]
        found.append(change.norm(dim=1))
    return torch.cat(found)


def timed(call, repeats, budget):
    """Returns the seconds of each call after a warm-up, and the last result."""
    result, seconds = call(), []
    while not seconds or (len(seconds) < repeats and sum(seconds) < budget):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return seconds, result


def columns(name, seconds, factor=1.0):
    """Returns median, fastest and slowest of seconds, times `factor`, as columns of a row."""
    found = statistics.median(seconds), min(seconds), max(seconds)
    what = ("seconds", "fastest", "slowest")
    return {f"{name}_{k}": factor * x for k, x in zip(what, found, strict=True)}


def main(path):
    """Prints influences and seconds as JSON.

    All substitutions run in batches; one at a time the first few do, scaled to all.
    """
    stored = np.load(path)
    archive = {name: torch.tensor(stored[name]) for name in stored.files}
    whole = ("num_layers", "query", "batch", "alone", "threads", "repeats")
    archive |= {name: int(stored[name]) for name in whole}
    budget = float(stored["budget"])
    torch.set_num_threads(archive["threads"])
    torch.set_grad_enabled(False)
    how = archive["repeats"], budget
    positions, symbols = archive["positions"].long(), archive["symbols"].long()
    few = min(archive["alone"], len(positions))
    passed, _ = timed(
        lambda: forward(archive, archive["rows"][None], archive["query"], False), *how
    )
    batched, found = timed(
        lambda: influences(archive, positions, symbols, archive["batch"]), *how
    )
    alone, _ = timed(
        lambda: influences(archive, positions[:few], symbols[:few], 1), *how
    )
    answer = {
        "influence": found.double().tolist(),
        **columns("forward", passed),
        **columns("batched", batched),
        **columns("alone", alone, len(positions) / few),
        "alone_timed": few,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])

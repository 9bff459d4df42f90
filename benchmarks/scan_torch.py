"""The part of `benchmarks.scan_peer` that runs on PyTorch alone.

Run by another interpreter, with Transformers where it is asked for: no package of this
repository is imported, and a question is a NumPy archive. It is what people do
without a method: the model as its library has it, with PyTorch's fused attention, run for
every substitution, in batches, eagerly and compiled where that works, on a GPU where
PyTorch sees one, in float32.
"""

import json
import sys
import time

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def read_model(stored):
    """Function from inputs [b, n] or [b, n, d] to final rows [b, n, d] or logits."""
    if "folder" in stored.files:
        from transformers import (  # pyright: ignore[reportMissingImports]
            AutoModel,
            AutoModelForMaskedLM,
            logging,
        )

        logging.set_verbosity_error()
        head = "logits" if "logits" in stored.files else "last_hidden_state"
        kind = AutoModelForMaskedLM if head == "logits" else AutoModel
        # scaled_dot_product_attention
        model = kind.from_pretrained(str(stored["folder"]), attn_implementation="sdpa")
        model.eval().to(DEVICE)
        return lambda inputs: getattr(model(inputs), head)
    arrays = {
        k: torch.tensor(stored[k]) for k in stored.files if k.startswith("state.")
    }
    state = {k.removeprefix("state."): x for k, x in arrays.items()}
    inner, d = state["layers.0.linear1.weight"].shape
    how = {
        "activation": str(stored["activation"]),
        "batch_first": True,
        "norm_first": "causal" in stored.files,
    }
    layer = torch.nn.TransformerEncoderLayer(d, int(stored["heads"]), inner, **how)
    depth = sum(name.endswith("linear1.weight") for name in state)
    encoder = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
    encoder.eval().load_state_dict(state)
    encoder.to(DEVICE)
    if "embedding" not in stored.files:
        return encoder
    table, place = (
        torch.tensor(stored[name]).to(DEVICE) for name in ("embedding", "position")
    )
    if "causal" not in stored.files:
        return lambda tokens: encoder(table[tokens] + place)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(len(place)).to(DEVICE)
    return lambda tokens: encoder(table[tokens] + place, mask, is_causal=True)


def is_compiled(model, inputs):
    """Whether the compiled model runs; compiles it for the shapes of `inputs`."""
    try:
        model(inputs)
    except Exception as error:  # of any of the compiler's parts
        print(f"not compiled: {error}", file=sys.stderr)
        return False
    return True


def watched(found, rows):
    """The row `rows` of each output, or all rows if an entry of `rows` is below 0."""
    if (rows < 0).any():
        return found
    return found[torch.arange(len(found)), rows]


def timed(model, inputs, rows, ways):
    """Seconds of a pass in the fastest way, that way (batch, compiled), and its outputs."""
    found = []
    for batch, compiled in ways:
        if batch > len(inputs):
            continue
        whole = inputs[: len(inputs) // batch * batch]  # one shape of each batch
        run = torch.compile(model, dynamic=False) if compiled else model
        if compiled and not is_compiled(run, inputs[:batch]):
            continue
        run(inputs[:batch])
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        parts = zip(whole.split(batch), rows.split(batch), strict=False)
        outputs = torch.cat([watched(run(x), at) for x, at in parts])
        outputs = outputs.cpu()  # waits for them
        seconds = (time.perf_counter() - start) / len(whole)
        found.append((seconds, (batch, compiled), outputs))
    return min(found, key=lambda way: way[0])


def main(path):
    """Prints the norms of changes, the fastest way and its seconds a pass, as JSON."""
    stored = np.load(path)
    torch.set_num_threads(int(stored["threads"]))
    torch.set_grad_enabled(False)
    model, row = read_model(stored), torch.tensor(stored["row"])
    inputs = torch.tensor(stored["inputs"]).to(DEVICE)
    base, inputs = inputs[:1], inputs[1:]
    rows = row.expand(len(inputs))
    seconds, way, found = timed(model, inputs, rows, stored["ways"].tolist())
    same = watched(model(base).expand(len(found), *[-1] * 2), rows[: len(found)]).cpu()
    changes = (found - same).flatten(1).norm(dim=1).double().tolist()
    print(json.dumps({"seconds": seconds, "way": way, "changes": changes}))


if __name__ == "__main__":
    main(sys.argv[1])

"""The part of `benchmarks.scan_peer` and `scan_shapes` that runs on PyTorch alone.

Run by another interpreter, with Transformers and Captum where they are asked for: no package
of this repository is imported, and a question is a NumPy archive. It is what people do
without a method: the model as its library has it, run for every substitution, in batches, on
a GPU where PyTorch sees one, in float32 or under autocast; and Captum's ablation of every
position.
"""

import json
import sys
import time

import numpy as np
import torch  # pyright: ignore[reportMissingImports]

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def read_model(stored):
    """Returns a function from inputs [b, n(, d)] to final rows [b, n, d]."""
    if "folder" in stored.files:
        from transformers import (  # pyright: ignore[reportMissingImports]
            AutoModel,
            logging,
        )

        logging.set_verbosity_error()
        model = AutoModel.from_pretrained(str(stored["folder"])).eval().to(DEVICE)
        return lambda inputs: model(inputs).last_hidden_state
    arrays = {
        k: torch.tensor(stored[k]) for k in stored.files if k.startswith("state.")
    }
    state = {k.removeprefix("state."): x for k, x in arrays.items()}
    inner, d = state["layers.0.linear1.weight"].shape
    how = {"activation": str(stored["activation"]), "batch_first": True}
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
    return lambda tokens: encoder(table[tokens] + place)


def timed(model, inputs, row, batches):
    """Returns seconds of a pass in the best of the batches, that, and the rows found."""
    seconds, found = {}, torch.zeros(0)
    for batch in batches:
        model(inputs[:batch])
        if DEVICE == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        rows = [model(x)[:, row] for x in inputs.split(batch)]
        found = torch.cat(rows).float().cpu()  # waits for them
        seconds[batch] = (time.perf_counter() - start) / len(inputs)
    best = min(seconds, key=lambda batch: seconds[batch])
    return seconds[best], best, found


def ablated(model, inputs, row, batch):
    """Returns the seconds of Captum's ablation for each position, None without it."""
    try:
        from captum.attr import (  # pyright: ignore[reportMissingImports]
            FeatureAblation,
        )
    except ImportError:
        return None
    if inputs.is_floating_point():  # features are then coordinates, not positions
        features = torch.arange(inputs.shape[1])[None, :, None].expand(inputs[:1].shape)
    else:
        features = torch.arange(inputs.shape[1])[None]
    method = FeatureAblation(lambda x: model(x)[:, row].norm(dim=1))
    start = time.perf_counter()
    method.attribute(inputs[:1], feature_mask=features, perturbations_per_eval=batch)
    return (time.perf_counter() - start) / inputs.shape[1]


def main(path):
    """Prints norms of changes and seconds of a pass, by autocast's type, as JSON."""
    stored = np.load(path)
    torch.set_num_threads(int(stored["threads"]))
    torch.set_grad_enabled(False)
    model, row = read_model(stored), int(stored["row"])
    inputs, answer = torch.tensor(stored["inputs"]).to(DEVICE), {}
    for name in stored["types"].tolist():
        half = {"dtype": getattr(torch, name), "enabled": name != "float32"}
        with torch.autocast(DEVICE, **half):
            seconds, batch, found = timed(
                model, inputs, row, stored["batches"].tolist()
            )
        changes = (found[1:] - found[0]).norm(dim=1)
        answer[name] = {
            "seconds": seconds,
            "batch": batch,
            "changes": changes.double().tolist(),
        }
    if stored["ablate"]:
        batch = answer["float32"]["batch"]
        answer["ablation"] = ablated(model, inputs, row, batch)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])

"""The part of `benchmarks.scan_peer` that runs on PyTorch, Transformers and Captum alone.

Run by another interpreter: no package of this repository is imported, and a question is a
NumPy archive. It is what people do without a method: the model as its library has it, run
for every substitution, in batches; and Captum's ablation of every position.
"""

import json
import sys
import time

import numpy as np
import torch  # pyright: ignore[reportMissingImports]


def read_model(stored):
    """Returns a function from inputs [b, n(, d)] to final rows [b, n, d]."""
    folder = str(stored["folder"])
    if "state" not in stored.files:
        from transformers import (  # pyright: ignore[reportMissingImports]
            AutoModel,
            logging,
        )

        logging.set_verbosity_error()
        model = AutoModel.from_pretrained(folder).eval()
        return lambda inputs: model(inputs).last_hidden_state
    prefix = str(stored["state"])
    state = torch.load(f"{folder}/state_dict.pt", weights_only=True, map_location="cpu")
    stack = {k.removeprefix(prefix): x for k, x in state.items() if prefix in k}
    inner, d = stack["layers.0.linear1.weight"].shape
    layer = torch.nn.TransformerEncoderLayer(
        d, int(stored["heads"]), inner, batch_first=True
    )
    encoder = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    encoder.eval().load_state_dict(stack)
    return encoder


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
    """Prints norms of changes, and seconds of each pass by batch, as JSON."""
    stored = np.load(path)
    torch.set_num_threads(int(stored["threads"]))
    torch.set_grad_enabled(False)
    model, row = read_model(stored), int(stored["row"])
    inputs = torch.tensor(stored["inputs"])
    seconds, found = {}, torch.zeros(0)
    for batch in stored["batches"].tolist():
        whole = inputs[: len(inputs) // batch * batch]
        model(whole[:batch])
        start = time.perf_counter()
        rows = [model(x)[:, row] for x in whole.split(batch)]
        seconds[batch] = (time.perf_counter() - start) / len(whole)
        found = torch.cat(rows)
    best = min(seconds, key=lambda batch: seconds[batch])
    changes = (found[1:] - found[0]).norm(dim=1)
    answer = {
        "seconds": seconds[best],
        "batch": best,
        "changes": changes.double().tolist(),
        "ablation": ablated(model, inputs, row, best) if stored["ablate"] else None,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])

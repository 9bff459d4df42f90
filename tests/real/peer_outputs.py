"""What `transformers` makes of a checkpoint in float64: run by PEER_PYTHON, not by the tests.

`python peer_outputs.py CLASS FOLDER OUT LENGTH` writes OUT, a safetensors file of random
tokens, the final activations of every row and the logits. Weights that are a pickle are
first written as `model.safetensors` beside it.
"""

import importlib
import pathlib
import sys
from typing import Any

import numpy as np
from safetensors.numpy import save_file


def main(kind: str, folder: str, out: str, length: str) -> None:
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    pickled = pathlib.Path(folder) / "pytorch_model.bin"
    whole = pickled.with_name("model.safetensors")
    if not whole.exists():
        state = torch.load(pickled, weights_only=True, map_location="cpu")
        save_file({name: x.numpy() for name, x in state.items()}, whole)
    family = getattr(transformers, kind)
    model = family.from_pretrained(folder, attn_implementation="eager").double().eval()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    tokens = np.random.default_rng(0).integers(5, model.config.vocab_size, int(length))
    with torch.no_grad():
        found = model(torch.from_numpy(tokens[None]), output_hidden_states=True)
    outputs = {"tokens": tokens, "rows": found.hidden_states[-1][0].numpy()}
    if "logits" in found:
        outputs["logits"] = found.logits[0].numpy()
    save_file(outputs, out)


if __name__ == "__main__":
    main(*sys.argv[1:])

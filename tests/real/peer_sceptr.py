"""What SCEPTR makes of a receptor in float64: run by PEER_PYTHON, not by the tests.

`python peer_sceptr.py FOLDER OUT` writes to OUT `state.safetensors`, `outputs.safetensors`:
the weights, a pickle there, and of a receptor of random amino acids its tokens, the loop of
each, final activations of every row and logits. The module is written anew from the
package's own (libtcrlm 1.0): one-hot token, place in its loop from 0 to 1, one-hot loop,
projected without a bias, and PyTorch's encoder.
"""

import importlib
import pathlib
import sys
from typing import Any

import numpy as np
from safetensors.numpy import save_file

# Amino acids of CDR1, CDR2 and CDR3 of the alpha chain, then of the beta chain; one of
# length 1, whose place is 1/2.
LOOPS = (6, 6, 13, 5, 1, 15)
START, FIRST, LAST = 2, 3, 22  # symbols: the first row's, and amino acids
HEADS = 8


def main(folder: str, out: str) -> None:
    torch: Any = importlib.import_module("torch")
    torch.set_default_dtype(torch.float64)
    pickled = pathlib.Path(folder) / "state_dict.pt"
    state = torch.load(pickled, weights_only=True, map_location="cpu")
    held = {name: x.numpy() for name, x in state.items()}
    save_file(held, pathlib.Path(out) / "state.safetensors")

    def under(prefix: str) -> dict[str, Any]:
        found = {k: x for k, x in state.items() if k.startswith(prefix)}
        return {k.removeprefix(prefix): x.double() for k, x in found.items()}

    stack = under("_self_attention_stack._standard_stack._self_attention_stack.")
    project = under("_self_attention_stack._initial_projector.")["weight"]
    inner, d = stack["layers.0.linear1.weight"].shape
    layer = torch.nn.TransformerEncoderLayer(d, HEADS, inner, batch_first=True)
    encoder = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
    encoder.eval().load_state_dict(stack)
    draws = np.random.default_rng(0)
    tokens = [START, *draws.integers(FIRST, LAST + 1, sum(LOOPS))]
    loop = np.repeat(np.arange(7), (1, *LOOPS))
    places = [0.0]
    for length in LOOPS:
        places += np.linspace(0, 1, length).tolist() if length > 1 else [0.5]
    # Symbol 0 is padding, loop 0 that of the first row: neither has a coordinate.
    one_hot = (torch.eye(23)[:, 1:], torch.eye(7)[:, 1:])
    symbols, loops = (
        table[torch.tensor(at)]
        for table, at in zip(one_hot, (tokens, loop), strict=True)
    )
    entering = torch.cat([symbols, torch.tensor(places)[:, None], loops], 1)
    final = under("_mlm_token_prediction_projector.projector.")
    with torch.no_grad():
        rows = encoder((entering @ project.T)[None])[0]
        logits = rows @ final["weight"].T + final["bias"]
    outputs = {"tokens": np.array(tokens), "loops": loop, "rows": rows.numpy()}
    save_file(
        outputs | {"logits": logits.numpy()}, pathlib.Path(out) / "outputs.safetensors"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])

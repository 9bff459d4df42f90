"""The part of the CROWN comparison that runs on PyTorch and auto_LiRPA alone.

Run by `benchmarks.crown_peer`, possibly with another interpreter: no package of this
repository is imported, and a question is a NumPy archive. The input of the bounded
network is one number t in [0, 1], the place on the segment between the two embeddings.
"""

import json
import sys
import time

import numpy as np
import torch  # pyright: ignore[reportMissingImports]
from auto_LiRPA import (  # pyright: ignore[reportMissingImports]
    BoundedModule,
    BoundedTensor,
    PerturbationLpNorm,
)


def as_linear(weight, bias):
    """Returns a fixed affine map as a module, whose weights auto_LiRPA accepts."""
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
    layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
    return layer.requires_grad_(False)


class Segment(torch.nn.Module):
    """The model's output at the last position as a function of t; softmax, no mask."""

    def __init__(self, archive):
        """Makes a linear map of every weight and bias in the archive."""
        super().__init__()
        rows, direction = archive["rows"], archive["direction"]
        self.n, self.d = rows.shape
        self.place = as_linear(direction.reshape(-1, 1), rows.reshape(-1))
        self.layers = torch.nn.ModuleList()
        for number in range(int(archive["num_layers"])):
            get = lambda name, number=number: archive[f"{number}.{name}"]
            parts = {
                "output": as_linear(get("output"), get("output_bias")),
                "first": as_linear(get("w1"), get("b1")),
                "second": as_linear(get("w2"), get("b2")),
            }
            for h in range(get("query").shape[0]):
                for name in ("query", "key", "value"):
                    weights = get(name)[h], get(f"{name}_bias")[h]
                    parts[f"{name}{h}"] = as_linear(*weights)
            self.layers.append(torch.nn.ModuleDict(parts))
        self.num_heads = archive["0.query"].shape[0]

    def forward(self, t):
        """Returns the last position's output at t [1, 1], as an array [1, d]."""
        x = self.place(t).reshape(1, self.n, self.d)
        for number, layer in enumerate(self.layers):
            y = x[:, self.n - 1 : self.n, :] if number == len(self.layers) - 1 else x
            heads = []
            for h in range(self.num_heads):
                q, k, v = (
                    layer[f"{name}{h}"](source)
                    for name, source in (("query", y), ("key", x), ("value", x))
                )
                scores = q.matmul(k.transpose(-1, -2)) / q.shape[-1] ** 0.5
                # Softmax without its shift, as the maximum has no linear bounds there;
                # scores are small here.
                raised = torch.exp(scores)
                weights = raised / raised.sum(-1, keepdim=True)
                heads.append(weights.matmul(v))
            c = y + layer["output"](torch.cat(heads, dim=-1))
            x = c + layer["second"](torch.relu(layer["first"](c)))
        return x.reshape(1, self.d)


def main(path):
    """Prints CROWN's bound, the norm of the true change, and the seconds, as JSON."""
    torch.set_default_dtype(torch.float64)
    model = Segment(np.load(path))
    start, end = torch.zeros(1, 1), torch.ones(1, 1)
    base = model(start)
    ends = float((model(end) - base).norm())
    began = time.perf_counter()
    # Patches are for convolutions, of which there are none.
    options = {"conv_mode": "matrix"}
    bounded = BoundedModule(model, start, bound_opts=options, device="cpu")
    segment = PerturbationLpNorm(norm=np.inf, x_L=start, x_U=end)
    lower, upper = bounded.compute_bounds(
        x=(BoundedTensor(start, segment),), method="CROWN"
    )
    # The output at t = 0 is inside, so the change is at most the farther end.
    change = torch.maximum(upper - base, base - lower)
    answer = {
        "bound": float(change.norm()),
        "ends": ends,
        "seconds": time.perf_counter() - began,
        "torch": torch.__version__,
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(sys.argv[1])

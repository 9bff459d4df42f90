"""Small states of torch modules, what these make of tokens in float64, and torch's files.

Run by an interpreter that has torch, from the root of the repository: `python -m
tests.jax_models.format.pretrained.make_states` writes two files for each row of `CASES`
into `states`, and into `torch_files` state dicts in every float type with views of shared
storages, a pickled module, and a state dict in the format before version 1.6.
"""

import importlib
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tests.jax_models.format.pretrained import make_fixtures

torch: Any  # of the interpreter that runs this, not of the tests'
FOLDER, FILES = (pathlib.Path(__file__).parent / x for x in ("states", "torch_files"))
V, D, HEADS, INNER, LONGEST = make_fixtures.V, 16, 4, 24, 20
Made = tuple[Any, Callable[[Any], tuple[Any, Any]]]  # rows and logits of tokens


def encoder(final_norm: bool, causal: bool, bias: bool, **said: Any) -> Made:
    """`TransformerEncoder` between an embedding with positions and a map to classes."""
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(
        D, HEADS, INNER, batch_first=True, bias=bias, **said
    )
    norm = nn.LayerNorm(D, bias=bias) if final_norm else None
    stack = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    model = nn.ModuleDict(
        {
            "embedding": nn.Embedding(V, D),
            "encoder": stack,
            "classes": nn.Linear(D, 3, bias=bias),
        }
    )
    model.register_buffer("places", torch.randn(LONGEST, 1, D))

    def forward(tokens: Any) -> tuple[Any, Any]:
        n = tokens.shape[1]
        seen = nn.Transformer.generate_square_subsequent_mask(n) if causal else None
        rows = model.encoder(model.embedding(tokens) + model.places[:n, 0], mask=seen)
        return rows, model.classes(rows)

    return model, forward


def nanogpt(bias: bool) -> Made:
    """A decoder with nanoGPT's names, its read-out tied to the embedding."""
    nn = torch.nn

    def block() -> Any:
        attention = {"c_attn": (D, 3 * D), "c_proj": (D, D)}
        mlp = {"c_fc": (D, 4 * D), "c_proj": (4 * D, D)}
        maps = {
            name: nn.ModuleDict(
                {k: nn.Linear(*shape, bias=bias) for k, shape in those.items()}
            )
            for name, those in {"attn": attention, "mlp": mlp}.items()
        }
        norms = {name: nn.LayerNorm(D, bias=bias) for name in ("ln_1", "ln_2")}
        return nn.ModuleDict(maps | norms)

    inner = {
        "wte": nn.Embedding(V, D),
        "wpe": nn.Embedding(LONGEST, D),
        "h": nn.ModuleList([block() for _ in range(3)]),
        "ln_f": nn.LayerNorm(D, bias=bias),
    }
    head = nn.Linear(D, V, bias=False)
    model = nn.ModuleDict({"transformer": nn.ModuleDict(inner), "lm_head": head})
    head.weight = inner["wte"].weight

    def forward(tokens: Any) -> tuple[Any, Any]:
        y = inner["wte"](tokens) + inner["wpe"].weight[: tokens.shape[1]]
        for layer in inner["h"]:
            made = layer.attn.c_attn(layer.ln_1(y)).chunk(3, dim=-1)
            heads = [x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in made]
            found = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            y = y + layer.attn.c_proj(found.transpose(1, 2).flatten(2))
            hidden = nn.functional.gelu(layer.mlp.c_fc(layer.ln_2(y)))
            y = y + layer.mlp.c_proj(hidden)
        rows = inner["ln_f"](y)
        return rows, head(rows)

    return model, forward


# Final norm, mask, biases, norms first, activation: each beside its other.
CASES: dict[str, Callable[[], Made]] = {
    "encoder": lambda: encoder(False, False, True, norm_first=False, activation="relu"),
    "encoder_causal": lambda: encoder(
        True, True, True, norm_first=True, activation="gelu"
    ),
    "encoder_bias_free": lambda: encoder(
        True, True, False, norm_first=False, activation="gelu"
    ),
    "encoder_pre_bias_free": lambda: encoder(
        False, False, False, norm_first=True, activation="relu"
    ),
    "nanogpt": lambda: nanogpt(True),
    "nanogpt_bias_free": lambda: nanogpt(False),
}


def make(name: str) -> None:
    torch.manual_seed(0)
    model, forward = CASES[name]()
    model.eval()
    make_fixtures.draw(model)
    for buffer in model.buffers():
        buffer.copy_(buffer.float())
    state = {key: x.float().numpy() for key, x in model.state_dict().items()}

    def run(tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        with torch.no_grad():
            rows, logits = forward(torch.from_numpy(tokens))
        return rows.numpy(), logits.numpy()

    save_file(state, FOLDER / f"{name}.safetensors")
    expected = make_fixtures.references(run, np.arange(V))
    save_file(expected, FOLDER / f"{name}.expected.safetensors")


def file_state() -> dict[str, Any]:
    """A module's state, and tensors that are views, parameters, empty or single."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    state = module.state_dict()
    weight = state["0.weight"]
    state |= {"tied": weight, "transposed": weight.T, "part": torch.arange(10.0)[3:7]}
    state |= {"scalar": torch.tensor(2.5), "empty": torch.zeros((0, 3))}
    state |= {"parameter": torch.nn.Parameter(torch.ones(2))}
    for kind in ("float64", "float16", "bfloat16", "int64", "uint8", "bool"):
        state[kind] = torch.tensor([0, 1, 3]).to(getattr(torch, kind))
    return state


def make_files() -> None:
    """Writes a state in the formats of torch, and its tensors as safetensors."""
    torch.manual_seed(0)
    state = file_state()
    torch.save(state, FILES / "state.bin")
    torch.save(dict(state), FILES / "plain.bin")
    torch.save(state, FILES / "protocol_4.bin", pickle_protocol=4)
    torch.save({"state_dict": state, "epoch": 3}, FILES / "nested.bin")
    torch.save(torch.nn.Linear(3, 2), FILES / "module.bin")
    torch.save(state, FILES / "older.bin", _use_new_zipfile_serialization=False)
    held = {name: x.detach().contiguous() for name, x in state.items()}
    held["bfloat16"] = held["bfloat16"].float()
    save_file(
        {k: x.numpy().copy() for k, x in held.items()}, FILES / "state.safetensors"
    )


if __name__ == "__main__":
    torch = make_fixtures.torch = importlib.import_module("torch")
    FOLDER.mkdir(exist_ok=True)
    FILES.mkdir(exist_ok=True)
    make_files()
    torch.set_default_dtype(torch.float64)
    for case in CASES:
        make(case)
        print(case, flush=True)

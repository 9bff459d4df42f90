"""Small checkpoints of every family, and what `transformers` makes of them in float64.

Run by an interpreter that has torch and transformers: `python make_fixtures.py` makes the
weights of every folder in `fixtures` anew, by its `config.json`, which a new one needs alone
(`model_type`, `architectures` and what differs from the defaults). Whatever transformers
computes in float32 whatever the model's type (RMSNorm, rotary tables, some softmaxes) is
computed in float64; `python make_fixtures.py unpatched` then adds the rows of transformers as
it is, and `python make_fixtures.py pairs` outputs of pairs of texts, whose second has type 1,
and `python make_fixtures.py masked` logits at each position under its mask.
"""

import importlib
import os
import pathlib
import sys
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

torch: Any  # of the interpreter that runs this, not of the tests'
transformers: Any
FOLDER = pathlib.Path(__file__).parent / "fixtures"
N, V = 12, 20
# Those whose families give the second text of a pair another type.
PAIRS = ("bert", "bert_classifier", "electra_classifier", "albert_classifier")
# Those whose masked passes are stored; symbol 3 is the mask.
MASKED = ("bert", "esm")


def in_float64() -> None:
    """Makes torch take every wish for float32 for one for float64."""
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double


def draw(model: Any) -> None:
    """Numbers that float32 holds, norms near one, nothing zero."""
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        drawn = torch.randn(parameter.shape, generator=generator)
        norm = "norm" in name.lower() or ".ln_" in name
        drawn = 0.3 * drawn + (norm and name.endswith("weight"))
        rounded = drawn.numpy().astype(np.float32).astype(np.float64)
        parameter.data.copy_(torch.from_numpy(rounded))


def run(model: Any, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Final activations of every row [b, n, d], and logits where there are some."""
    with torch.no_grad():
        out = model(torch.from_numpy(tokens), output_hidden_states=True)
    base = getattr(model, model.base_model_prefix, model)
    with torch.no_grad():
        rows = base(torch.from_numpy(tokens)).last_hidden_state
    logits = getattr(out, "logits", getattr(out, "pooler_output", None))
    return rows.numpy(), None if logits is None else logits.numpy()


def configured(folder: pathlib.Path) -> Any:
    """The model of a folder's configuration, its weights drawn."""
    config = transformers.AutoConfig.from_pretrained(
        folder, attn_implementation="eager"
    )
    model = getattr(transformers, config.architectures[0])(config).eval().double()
    draw(model)
    return model


def stored(folder: pathlib.Path) -> Any:
    """The model of a folder, with its stored weights."""
    (kind,) = transformers.AutoConfig.from_pretrained(folder).architectures
    family = getattr(transformers, kind)
    model = family.from_pretrained(folder, attn_implementation="eager")
    return model.double().eval()


def make(folder: pathlib.Path) -> None:
    model = configured(folder)
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    with safe_open(path, framework="np") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}
    save_file({name: x.astype(np.float32) for name, x in held.items()}, path)
    allowed = np.array([x for x in range(V) if x not in (1, 3)])
    expected = references(lambda tokens: run(model, tokens), allowed)
    save_file(expected, folder / "expected.safetensors")


def add_unpatched(folder: pathlib.Path) -> None:
    """Writes the rows that transformers has in its own types beside the others."""
    path = folder / "expected.safetensors"
    expected = load_file(path)
    rows, _ = run(stored(folder), expected["tokens"][None])
    save_file(expected | {"unpatched_rows": rows[0]}, path)


def add_pairs(folder: pathlib.Path) -> None:
    """Writes tokens of a pair with symbol 2 behind each text, and rows and logits."""
    model = stored(folder)
    tokens = np.array([0, 7, 4, 9, 2, 5, 7, 11, 2])
    types = torch.from_numpy((np.arange(9) > 4).astype(np.int64)[None])
    inputs = {"input_ids": torch.from_numpy(tokens[None]), "token_type_ids": types}
    with torch.no_grad():
        logits = model(**inputs).logits[0].numpy()
        rows = getattr(model, model.base_model_prefix)(**inputs).last_hidden_state[0]
    expected = {"tokens": tokens, "rows": rows.numpy(), "logits": logits}
    save_file(expected, folder / "pairs.safetensors")


def add_masked(folder: pathlib.Path) -> None:
    """Writes the logits [n, v] of each position where it alone is the mask."""
    model = configured(folder)
    tokens = load_file(folder / "expected.safetensors")["tokens"]
    masked = np.where(np.eye(N, dtype=bool), 3, tokens)
    at = np.arange(N)
    with torch.no_grad():
        logits = model(torch.from_numpy(masked)).logits.numpy()[at, at]
        own = model(torch.from_numpy(tokens[None])).logits[0].numpy()
    made = {"tokens": tokens, "logits": logits, "unmasked": own}
    save_file(made, folder / "masked.safetensors")


def references(run: Any, allowed: np.ndarray) -> dict[str, np.ndarray]:
    """Tokens, rows, logits where there are some, and influences of all substitutes."""
    tokens = np.random.default_rng(0).choice(allowed, N)
    rows, logits = run(tokens[None])
    expected = {"tokens": tokens, "rows": rows[0]}
    if logits is not None:
        expected["logits"] = logits[0]
    changed, where = [], []
    for i in range(N):
        for symbol in allowed:
            if symbol != tokens[i]:
                changed.append(tokens.copy())
                changed[-1][i] = symbol
                where.append((i, symbol))
    others, _ = run(np.array(changed))
    influence = np.full((N, V), np.nan)
    influence[tuple(np.array(where).T)] = np.linalg.norm(
        others[:, -1] - rows[0, -1], axis=-1
    )
    return expected | {"influence": influence}


if __name__ == "__main__":
    torch, transformers = map(importlib.import_module, ("torch", "transformers"))
    mode = sys.argv[1] if sys.argv[1:] else ""
    if mode in ("", "masked"):
        in_float64()
    ways = {"unpatched": add_unpatched, "pairs": add_pairs, "masked": add_masked}
    chosen = {"pairs": PAIRS, "masked": MASKED}.get(mode, os.listdir(FOLDER))
    for name in sorted(chosen):
        ways.get(mode, make)(FOLDER / name)
        print(name, flush=True)

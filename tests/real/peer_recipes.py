"""Maps of a masked language model by their authors' definitions: run by PEER_PYTHON.

`python peer_recipes.py CLASS FOLDER ASKED OUT` reads ASKED, a safetensors file of `tokens`
[n] with a special symbol at either end, and `letters` [K], and writes OUT: the dependency map
and the contacts of the categorical Jacobian, of all tokens between, from logits in float64.

Sources:
    Tomaz da Silva et al., Nucleotide dependency analysis of DNA language models reveals
    genomic functional elements, 2024: log2 odds of shares renormalised over the letters
    with 1e-10 added.
    Zhang et al., Protein language models learn evolutionary statistics of interacting
    sequence motifs, 2024: the categorical Jacobian, centred, symmetrised, its norms
    without their average product.
"""

import importlib
import sys
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file


def main(kind: str, folder: str, asked: str, out: str) -> None:
    """Writes the maps."""
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    family = getattr(transformers, kind)
    model = family.from_pretrained(folder, attn_implementation="eager").double().eval()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    tokens, letters = (load_file(asked)[name] for name in ("tokens", "letters"))
    inner = range(1, len(tokens) - 1)

    def logits(batch: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return model(torch.from_numpy(batch)).logits[:, 1:-1].numpy()

    base = logits(tokens[None])[0]
    variants = []
    for i in inner:
        batch = np.repeat(tokens[None], len(letters), axis=0)
        batch[:, i] = letters
        variants.append(logits(batch))
    every = np.stack(variants)  # position, letter, row, symbol
    maps = {
        "dependencies": dependency_map(base, every, tokens[1:-1], letters),
        "contacts": contacts((every - base)[..., letters]),
    }
    save_file(maps, out)


def dependency_map(
    base: np.ndarray, every: np.ndarray, tokens: np.ndarray, letters: np.ndarray
) -> np.ndarray:
    """The largest change of log2 odds over substitutes and letters, the diagonal 0."""

    def log_odds(logits: np.ndarray) -> np.ndarray:
        shares = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares = (shares / shares.sum(axis=-1, keepdims=True))[..., letters] + 1e-10
        shares = shares / shares.sum(axis=-1, keepdims=True)
        return np.log2(shares / (1 - shares))

    change = np.abs(log_odds(every) - log_odds(base))
    for i, token in enumerate(tokens):
        change[i, letters == token] = 0
    found = change.max(axis=(1, 3))
    np.fill_diagonal(found, 0)
    return found


def contacts(jacobian: np.ndarray) -> np.ndarray:
    """The categorical Jacobian's map: centred, symmetrised, norms, less products."""
    for axis in range(4):
        jacobian = jacobian - jacobian.mean(axis=axis, keepdims=True)
    jacobian = (jacobian + jacobian.transpose(2, 3, 0, 1)) / 2
    found = np.sqrt((jacobian**2).sum(axis=(1, 3)))
    np.fill_diagonal(found, 0)
    by_row, by_column = found.sum(0, keepdims=True), found.sum(1, keepdims=True)
    found = found - by_row * by_column / found.sum()
    np.fill_diagonal(found, 0)
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])

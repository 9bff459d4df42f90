"""What an imported model is compared with: a plain forward pass, and stored outputs.

Differences are over the largest row's norm: a row that cancels is what rounding leaves of
it.
"""

import os
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from jax_models.arguments import expect_file
from jax_models.errors import InputError
from jax_models.format.build import name_tensors
from jax_models.format.config import encode_config
from jax_models.format.pretrained.plain import plain_forward, plain_logits
from jax_models.model.transformer import Transformer
from jax_models.run.evaluate import apply, apply_logits

TOKENS = 8
# Largest difference of a row over the largest row's norm, by float type; some 1e4
# roundoffs. Of two ways to compute one model a misread tensor exceeds the other, and not
# what rounding leaves of rows that cancel by construction.
ALLOWED = {"float64": 1e-11, "float32": 2e-3}
ALLOWED_OF_SPELLINGS = {"float64": 1e-7, "float32": 2e-3}


def compare_spellings(model: Transformer) -> None:
    """Refuses a model whose two spellings differ on a few tokens.

    Args:
        model: an imported one.

    Raises:
        InputError: the engine and the plain pass differ by more than rounding.
    """
    allowed = np.asarray(model.substitutable or range(model.vocab_size))
    length = min(TOKENS, len(allowed), _longest(model))
    tokens = allowed[np.linspace(0, len(allowed) - 1, length).astype(int)]
    tensors = name_tensors(model)
    config = encode_config(model, tensors)
    tensors = {k: np.asarray(x, np.float64) for k, x in tensors.items()}
    if model.position is not None:
        width = model.embedding.shape[1]
        encoded = model.position.encode(length, width)
        tensors["position"] = np.asarray(encoded, np.float64)
    expected = {"rows": plain_forward(config, tensors, tokens)}
    if model.readout is not None:
        expected["logits"] = plain_logits(config, tensors, expected["rows"])
    found = _differences(model, tokens, expected)
    for name, apart in found.items():
        if not apart <= ALLOWED_OF_SPELLINGS[str(model.dtype)]:
            raise InputError(
                f"the imported model's {name} differ from those of a plain forward pass "
                f"by {apart:.2g} of the largest row; this is a defect of the import, "
                "please report it with the checkpoint's config.json or the call"
            )


def compare_outputs(
    model: Transformer, path: str | os.PathLike[str]
) -> dict[str, float]:
    """Returns how far a model is from stored outputs, over the largest row's norm.

    Args:
        model: an imported one.
        path: a safetensors file of tokens [n], and rows [n, d], logits [n, c] or both.

    Raises:
        InputError: the file is none, does not fit the model, or differs by more than
            rounding in the model's float type.
    """
    path = expect_file("--check", path)
    try:
        stored = safetensors.numpy.load_file(path)
    except (safetensors.SafetensorError, TypeError, ValueError) as error:
        raise InputError(
            f"{str(path)!r} is not a complete safetensors file: {error}"
        ) from error
    tokens = stored.get("tokens")
    expected = {k: stored[k] for k in ("rows", "logits") if k in stored}
    if tokens is None or not expected:
        raise InputError(
            f"{str(path)!r} holds {sorted(stored)}; expected tokens [n], and rows [n, d], "
            "logits [n, c] or both"
        )
    found = _differences(model, tokens, expected, Path(path))
    for name, apart in found.items():
        if not apart <= (allowed := ALLOWED[str(model.dtype)]):
            raise InputError(
                f"the model's {name} differ from those of {str(path)!r} by {apart:.2g} of "
                f"the largest row; expected at most {allowed} in {model.dtype}"
            )
    return found


def _differences(
    model: Transformer,
    tokens: np.ndarray,
    expected: dict[str, np.ndarray],
    path: Path | None = None,
) -> dict[str, float]:
    """The largest difference of a row over the largest row's norm, of rows and logits."""
    outputs: dict[str, Any] = {"rows": apply, "logits": apply_logits}
    found = {}
    for name, wanted in expected.items():
        made = np.asarray(outputs[name](model, tokens), np.float64)
        if made.shape != wanted.shape:
            raise InputError(
                f"{name} of {str(path)!r} have shape {wanted.shape}; the model's have "
                f"{made.shape}"
            )
        largest = np.linalg.norm(wanted, axis=-1).max()
        apart = np.linalg.norm(made - wanted, axis=-1).max()
        found[name] = float(apart / largest if largest > 0 else apart)
    return found


def _longest(model: Transformer) -> int:
    table = getattr(model.position, "table", None)
    return TOKENS if table is None else table.shape[0]

"""`from_pretrained`: a Hugging Face folder as a model."""

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from jax_models.arguments import choose_name, expect_kind, show
from jax_models.errors import InputError
from jax_models.format.build import build_model
from jax_models.format.config import FORMATS
from jax_models.format.pretrained.families import (
    ARCHITECTURES,
    BUFFERS,
    FAMILIES,
    HEADS,
    UNREAD,
    Family,
)
from jax_models.format.pretrained.folder import FLOATS, Folder
from jax_models.format.pretrained.parts import Parts, substitutable
from jax_models.format.pretrained.self_test import compare_outputs, compare_spellings
from jax_models.format.pretrained.sentences import read_pooling
from jax_models.model.transformer import Transformer
from jax_models.run.float_type import check_float_type


def from_pretrained(
    folder: str | os.PathLike[str],
    dtype: Any = None,
    head: str | None = None,
    check: str | os.PathLike[str] | None = None,
) -> Transformer:
    """Returns the model of a local Hugging Face folder.

    Reads `config.json` and `model.safetensors`, or the shards of its index, of the
    families in docs/checkpoints.md. The forward pass of the model is compared with a plain
    one in NumPy on a few tokens before it is returned. Every symbol may be substituted but
    the padding. What sentence-transformers write beside it says how its rows are pooled.

    Args:
        folder: where the checkpoint is.
        dtype: float32 or float64; None keeps the folder's, half precision as float32.
        head: what logits are read with: "none", "masked_lm", "causal_lm", "pooler",
            "classifier", "token_classifier" or "discriminator". By default what
            `architectures` of the configuration names. Poolers and classifiers of
            sequences read the row that is watched; the families mean the first, those
            with a future mask the last.
        check: a safetensors file of reference outputs to compare with: tokens [n], and
            rows [n, d], logits [n, c] or both.

    Returns:
        The model.

    Raises:
        InputError: for a folder that is not whole, or asks what is not supported, and a
            model that differs from the plain pass or the reference by more than rounding.
        OSError: if a file cannot be read.
    """
    expect_kind("folder", folder, str | os.PathLike, "a path")
    source = Folder(Path(folder))
    family = _family(source)
    parts = Parts(source, _float_type(source, dtype))
    prefix = _prefix(source, family)
    family.put(parts, prefix)
    asked = _default_head(source, family) if head is None else head
    choose_name("head", asked, ("none", *family.heads))
    if asked != "none":
        try:
            family.heads[asked](parts, prefix)
        except InputError as error:
            raise InputError(f"head = {asked!r}: {error}") from error
    if (pooling := read_pooling(source.path)) is not None:
        parts.config["pooling"] = pooling
    _refuse_left(source, prefix)
    vocab_size = parts.tensors["embedding"].shape[0]
    parts.config |= {
        "format": FORMATS[1],
        "substitutable": substitutable(source, vocab_size),
    }
    try:
        model = build_model(parts.config, parts.tensors)
    except InputError as error:
        raise InputError(f"{str(source.path)!r}: {error}") from error
    compare_spellings(model)
    if check is not None:
        compare_outputs(model, check)
    return model


def _family(source: Folder) -> Family:
    where, name = source.where("model_type"), source.get("model_type")
    return FAMILIES[choose_name(where, name, tuple(FAMILIES))]


def _float_type(source: Folder, dtype: Any) -> Any:
    kinds = source.kinds & set(FLOATS)
    if dtype is None:
        dtype = np.float64 if "F64" in kinds else np.float32
        if half := sorted(kinds & {"F16", "BF16"}):
            warnings.warn(
                f"{str(source.path)!r} holds {' and '.join(half)}; the model is float32",
                stacklevel=3,
            )
    check_float_type(dtype, "the model asked for")
    return np.dtype(dtype)


def _prefix(source: Folder, family: Family) -> str:
    """The base model's prefix, which folders of the base model alone leave out."""
    there = any(name.startswith(family.prefix) for name in source.left)
    return family.prefix if there else ""


def _default_head(source: Folder, family: Family) -> str:
    """The head that the configuration's architecture has."""
    listed = source.get("architectures", [])
    listed = ["Model"] if listed == [] else listed
    if not isinstance(listed, list) or not isinstance(listed[0], str):
        raise InputError(
            f"{source.where('architectures')} is {show(listed)}; expected a list of names"
        )
    ends = (end for end in ARCHITECTURES if listed[0].endswith(end))
    found = ARCHITECTURES[name] if (name := next(ends, None)) else "none"
    if found not in ("none", *family.heads) or not (
        name or listed[0].endswith("Model")
    ):
        raise InputError(
            f"{source.where('architectures')} is {listed[0]}, whose head is not read; "
            "expected a name that ends in one of "
            f"{', '.join([*ARCHITECTURES, 'Model'])}, or give head="
        )
    return found


def _refuse_left(source: Folder, prefix: str) -> None:
    """Refuses tensors that nothing was made of, known buffers and other heads apart."""
    left = sorted(
        name
        for name in source.left
        if not name.endswith(BUFFERS)
        and not name.removeprefix(prefix).startswith((*UNREAD, *HEADS))
    )
    if left:
        raise InputError(
            f"{str(source.path)!r} holds tensors that a model of this family does not "
            f"have: {show(left)}; the configuration may be that of another model"
        )

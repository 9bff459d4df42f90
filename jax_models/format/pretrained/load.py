"""`from_pretrained`: a Hugging Face folder as a model, and its check by stored outputs.

In folders of sentence-transformers, `modules.json` lists the modules after the transformer:
a pooling, whose folder has a `config.json` with one mode, and a division by the Euclidean
norm. A family is a group of architectures with one naming of tensors; a head maps final
activations to logits; `Parts` collects tensors and config of this package's model format.
"""

import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jax_models.arguments import (
    choose_name,
    expect_file,
    expect_kind,
    has_file,
    read_json_file,
    show,
)
from jax_models.errors import InputError, InputWarning, errors_of
from jax_models.format.build import build_model
from jax_models.format.config import FORMATS
from jax_models.format.file import read_safetensors
from jax_models.format.pretrained.families import (
    ARCHITECTURES,
    FAMILIES,
    HEADS,
    Family,
)
from jax_models.format.pretrained.folder import Folder, read_json
from jax_models.format.pretrained.parts import (
    FLOATS,
    Parts,
    Source,
    expect_default,
    put_padding,
)
from jax_models.format.pretrained.rotary import check_scalings
from jax_models.format.pretrained.tokenizer import (
    LISTED,
    MALFORMED,
    WHOLE,
    find_tokenizer,
    list_substitutes,
    read_symbols,
)
from jax_models.jax_arguments import check_float_type
from jax_models.model.transformer import Transformer
from jax_models.run.evaluate import apply, apply_logits

# Symbol between two texts, if a tokenizer has no template for pairs.
BETWEEN = "[SEP]"
# Heads that are applied to one row of a sequence.
OF_SEQUENCES = ("pooler", "classifier")


def from_pretrained(
    folder: str | os.PathLike[str],
    dtype: Any = None,
    head: str | None = None,
    check: str | os.PathLike[str] | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
) -> Transformer:
    """Returns the model of a local Hugging Face folder.

    Reads `config.json` and `model.safetensors`, or torch's `pytorch_model.bin` or a single
    `.pt` or `.pth`, or the shards of an index, of the families in docs/checkpoints.md.
    Symbols are substitutable that its tokenizer names, but
    special ones and the padding; without a tokenizer all but the padding. What
    sentence-transformers write beside it says how its rows are pooled.

    Args:
        folder: where the checkpoint is.
        dtype: float32 or float64; None keeps the folder's, half precision as float32.
        head: what logits are read with: "none", "masked_lm", "causal_lm", "pooler",
            "classifier", "token_classifier" or "discriminator". By default what
            `architectures` of the configuration names. Poolers and classifiers of
            sequences are of the first row (`head_row`), those of decoders of the last.
        check: a safetensors file of reference outputs to compare with: tokens [n], and
            rows [n, d], logits [n, c] or both.
        tokenizer: the folder or file of its tokenizer; by default the folder's own, if it
            has one.

    Returns:
        The model.

    Raises:
        InputError: for a folder that is not whole, or asks what is not supported, and a
            model that differs from the reference by more than rounding.
        OSError: if a file cannot be read.
    """
    expect_kind("folder", folder, str | os.PathLike, "a path")
    model, _ = read_folder(folder, dtype, head, tokenizer)
    if check is not None:
        compare_outputs(model, check)
    return model


def read_folder(
    folder: Any, dtype: Any = None, head: str | None = None, tokenizer: Any = None
) -> tuple[Transformer, list[str]]:
    """Returns the model of a folder, and the names of tensors that it does not need."""
    source = Folder(Path(folder))
    family = _family(source)
    source.list_tensors()
    parts = Parts(source, float_type(source, dtype))
    prefix = source.unwrap(family.find_prefix(source.left))
    parts.decoder = family.decoder
    parts.tied = source.flag("tie_word_embeddings", family.tied)
    _find_embedding(source, parts, f"{prefix}{family.embedding}")
    asked = _default_head(source, family, prefix) if head is None else head
    names = ("none", *family.heads)
    choose_name("head", asked, names)
    family.put_body(parts, prefix)
    if asked != "none":
        known = f"the names of heads here are {', '.join(names)}"
        with errors_of(f"head = {asked!r} ({known})"):
            family.heads[asked](parts, prefix)
    if asked in OF_SEQUENCES:
        parts.config["head_row"] = "last" if "causal_lm" in family.heads else "first"
    if (pooling := read_pooling(source.path, parts.width)) is not None:
        parts.config["pooling"] = pooling
    put_padding(parts)
    _put_symbols(parts, source.path, tokenizer)
    skipped = {x for x in source.left if _is_skipped(x, family, prefix, asked)}
    model = finish(parts, source.stored(source.left - skipped))
    return model, source.stored(skipped)


def describe_skipped(names: Sequence[str]) -> str:
    """Message that names skipped tensors, similar names once with a count; "" for none."""
    kinds = Counter(re.sub(r"\d+", "#", name) for name in names)
    some = (x if n == 1 else f"{x} ({n} of them)" for x, n in kinds.items())
    words = f"Skipped, as nothing of this model reads them: {', '.join(some)}\n"
    return words if names else ""


def finish(parts: Parts, left: Iterable[str]) -> Transformer:
    """Returns the model of `parts`; refuses names `left` of tensors that were not read."""
    source, left = parts.folder, sorted(left)
    if sinks := [name for name in left if name.endswith("sinks")]:
        raise InputError(
            f"{source.called} has attention sinks ({show(sinks)}), which no model here has"
        )
    if left:
        raise InputError(
            f"{source.called} holds tensors that a model of this family does not have: "
            f"{show(left)}; {source.unknown}"
        )
    with errors_of(source.called):
        return build_model(parts.config | {"format": FORMATS[1]}, parts.tensors)


def _put_symbols(parts: Parts, folder: Path, tokenizer: Any) -> None:
    """Adds substitutable and special symbols, and the separator, by the tokenizer."""
    own = any(has_file("tokenizer", folder / x) for x in (WHOLE, LISTED))
    if tokenizer is None and not own:
        return
    path = find_tokenizer(folder if tokenizer is None else tokenizer)
    rows = parts.tensors["embedding"].shape[0]
    names, special = read_symbols(path, rows)
    free, padding = parts.config["substitutable"], parts.config.get("padding")
    seen = set(range(rows)) - {padding}
    second = parts.second
    separator = None if second is None else find_separator(path, names)
    if second is not None and separator is not None:
        parts.config["position"] = {"kind": "pairs", "separator": separator}
        parts.put("position.second", second)
    parts.config["special"] = sorted(seen & special)
    parts.config["substitutable"] = list_substitutes(free, names, special, str(path))


def _family(source: Folder) -> Family:
    """Family of a checkpoint's configuration; `InputError` for unsupported settings."""
    where, name = source.where("model_type"), source.get("model_type")
    if name == "gpt_oss":
        raise InputError(
            f"{where} is {name!r}, which has attention sinks; no model here has them"
        )
    family = FAMILIES[choose_name(where, name, FAMILIES)]
    check_scalings(source)
    expect_default(
        source, "add_cross_attention", [False], "there is no second sequence"
    )
    if "masked_lm" in family.heads:
        expect_default(source, "is_decoder", [False], "it is read as an encoder")
    return family


def float_type(source: Source, dtype: Any) -> Any:
    """Checked `dtype`; for None float64 if the source holds any, else float32."""
    kinds = {source.header(name)[1] for name in source.held} & set(FLOATS)
    if dtype is None:
        dtype = np.float64 if "F64" in kinds else np.float32
        if half := sorted(kinds & {"F16", "BF16"}):
            warnings.warn(
                f"{source.called} holds {' and '.join(half)}; the model is float32",
                InputWarning,
                stacklevel=3,
            )
    check_float_type(dtype, "the model asked for")
    return np.dtype(dtype)


def _find_embedding(folder: Folder, parts: Parts, name: str) -> None:
    """Renames the decoder's tensor to `name`, of an embedding that is tied and not stored."""
    if name in folder or parts.decoder not in folder:
        return
    if not parts.tied:
        raise InputError(
            f"{folder.where('tie_word_embeddings')} is false, and {folder.called} has "
            f"{parts.decoder!r} alone, no embedding {name!r}; say true if the two are one"
        )
    folder.rename(parts.decoder, name)


def _default_head(source: Folder, family: Family, prefix: str) -> str:
    """Name of the head of the first of `architectures`; "none" for a base model."""
    listed, where = source.get("architectures", []), source.where("architectures")
    heads = [x for x in HEADS if x != "pooler."]
    if listed == [] and (
        "causal_lm" in family.heads
        or any(x.removeprefix(prefix).startswith(tuple(heads)) for x in source.left)
    ):
        raise InputError(
            f"{where} names no class, which says what logits are read with; give --head "
            f"(head=): one of none, {', '.join(family.heads)}"
        )
    listed = ["Model"] if listed == [] else listed
    if not isinstance(listed, list) or not isinstance(listed[0], str):
        raise InputError(f"{where} is {show(listed)}; expected a list of names")
    ends = (head for end, head in ARCHITECTURES.items() if listed[0].endswith(end))
    found = next(ends, "")
    if found not in ("none", *family.heads):
        raise InputError(
            f"{where} is {listed[0]}, whose head is not read; give --head=none (head=) to "
            "read the model without it; expected a name that ends in one of "
            f"{', '.join(ARCHITECTURES)}"
        )
    return found


def _is_skipped(name: str, family: Family, prefix: str, head: str) -> bool:
    """Whether a tensor is ignored: known as unused, or of a head not asked for."""
    plain = name.removeprefix(prefix)
    if head == "causal_lm" and plain == "lm_head.bias":  # these read-outs have none
        return False
    if re.sub(r"\d+", "#", plain) in family.left_behind or plain.startswith(HEADS):
        return True
    body = (prefix,) if prefix else tuple(f"{part}." for part in family.body)
    # With a prefix, a tensor outside the base model is of a head.
    return (
        head == "none"
        and not name.startswith(body)
        and not name.endswith(family.embedding)
    )


def find_separator(path: Path, symbols: dict[int, str]) -> int | None:
    """Symbol that the tokenizer puts between two texts of different type, or None."""
    name: Any = BETWEEN
    if path.suffix == ".json":
        name, said = None, read_json(path).get("post_processor") or {}
        with errors_of(f"{str(path)!r} is no tokenizer: in its pairs", *MALFORMED):
            for one in said.get("processors", [said]):
                if one.get("type") == "BertProcessing":
                    name = one["sep"][0]
                if one.get("type") == "TemplateProcessing":
                    name = _between(path, one["pair"])
    return next((symbol for symbol, x in symbols.items() if x == name), None)


def _between(path: Path, pieces: list[dict[str, dict[str, Any]]]) -> str | None:
    """Separator in a tokenizer's template of text pairs; None if the second has type 0."""
    said = [(kind, x["id"], x["type_id"]) for one in pieces for kind, x in one.items()]
    at = next(k for k, piece in enumerate(said) if piece[:2] == ("Sequence", "B"))
    if said[at][2] == 0:
        return None
    kind, name, type_ = said[at - 1]
    if said[at - 2] != ("Sequence", "A", 0) or (kind, type_) != ("SpecialToken", 0):
        raise InputError(
            f"pairs of {str(path)!r} are {show(pieces)}: types of tokens go with their "
            "text, and no single symbol stands between the two; name another tokenizer"
        )
    return name


# Supported pooling modes, with their names in the model format.
MODES = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "first",
    "pooling_mode_lasttoken": "last",
}
OTHERWISE = "leave {} out to read the rows alone"


def read_pooling(folder: Path, width: int) -> dict[str, Any] | None:
    """Returns the config entry `pooling` for a folder; None if it has no pooling."""
    listed, normalised = folder / "modules.json", False
    path = folder / "1_Pooling" / "config.json"
    if has_file("file", listed):
        modules = read_json_file("file", listed)
        with errors_of(f"{str(listed)!r}: expected modules", *MALFORMED):
            kinds = [one["type"].rpartition(".")[2] for one in modules]
        allowed = ["Transformer", "Pooling", "Normalize"]
        if kinds not in (allowed[:1], allowed[:2], allowed):
            raise InputError(
                f"{str(listed)!r} lists {', '.join(kinds) or 'nothing'}; expected "
                "Transformer, then Pooling, then Normalize; "
                f"{OTHERWISE.format('modules.json')}"
            )
        if len(kinds) == 1:
            return None
        path = folder / str(modules[1].get("path", "1_Pooling")) / "config.json"
        normalised = len(kinds) == 3
    elif not has_file("file", path):
        return None
    asked = read_json(path)
    modes = [x for x, on in asked.items() if x.startswith("pooling_mode_") and on]
    if len(modes) != 1 or modes[0] not in MODES:
        raise InputError(
            f"{str(path)!r} asks for {' and '.join(modes) or 'no mode'}; expected one of "
            f"{', '.join(MODES)}; {OTHERWISE.format('the pooling')}"
        )
    if asked.get("word_embedding_dimension", width) != width:
        raise InputError(
            f"word_embedding_dimension in {str(path)!r} is "
            f"{show(asked['word_embedding_dimension'])}, and the model's rows have {width} "
            f"numbers: it is another model's; {OTHERWISE.format('the pooling')}"
        )
    return {"kind": MODES[modes[0]], "normalised": normalised}


# Allowed Euclidean norm of a row's difference over that of the largest row, by float type;
# some 1e4 roundoffs. Not over that of the same row, which may be zero up to rounding.
ALLOWED = {"float64": 1e-11, "float32": 2e-3}


def compare_outputs(
    model: Transformer, path: str | os.PathLike[str]
) -> dict[str, float]:
    """Largest relative differences from stored rows and logits; refuses large ones."""
    path = expect_file("--check", path)
    stored, _ = read_safetensors(path)
    tokens = stored.get("tokens")
    outputs: dict[str, Any] = {"rows": apply, "logits": apply_logits}
    expected = {k: stored[k] for k in outputs if k in stored}
    if tokens is None or not expected:
        raise InputError(
            f"{str(path)!r} holds {sorted(stored)}; expected tokens [n], and rows [n, d], "
            "logits [n, c] or both"
        )
    allowed, found = ALLOWED[str(model.dtype)], {}
    for name, wanted in expected.items():
        made = np.asarray(outputs[name](model, tokens), np.float64)
        if made.shape != wanted.shape:
            raise InputError(
                f"{name} of {str(path)!r} have shape {wanted.shape}; the model's have "
                f"{made.shape}"
            )
        found[name] = apart = largest_difference(made, wanted)
        if not apart <= allowed:
            raise InputError(
                f"the model's {name} differ from those of {str(path)!r} by {apart:.2g} of "
                f"the largest row; expected at most {allowed} in {model.dtype}"
            )
    return found


def largest_difference(
    found: Float[np.ndarray, "... width"], wanted: Float[np.ndarray, "... width"]
) -> float:
    """Largest row norm of found - wanted, over that of `wanted` unless it is 0."""
    largest = np.linalg.norm(wanted, axis=-1).max()
    apart = np.linalg.norm(found - wanted, axis=-1).max()
    return float(apart / largest if largest > 0 else apart)

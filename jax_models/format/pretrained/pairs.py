"""Pairs of texts: which symbol a tokenizer puts between them, where the second has type 1."""

from pathlib import Path
from typing import Any

from jax_models.arguments import show
from jax_models.errors import InputError
from jax_models.format.pretrained.folder import read_json

BETWEEN = "[SEP]"  # of a vocabulary without a template


def find_separator(path: Path, symbols: dict[int, str]) -> int | None:
    """The separator of a tokenizer's pairs; None where all types are 0."""
    name: Any = BETWEEN
    if path.suffix == ".json":
        name, said = None, read_json(path).get("post_processor") or {}
        try:
            for one in said.get("processors", [said]):
                if one.get("type") == "BertProcessing":
                    name = one["sep"][0]
                if one.get("type") == "TemplateProcessing":
                    name = _between(path, one["pair"])
        except (LookupError, TypeError, AttributeError, StopIteration) as error:
            raise InputError(
                f"{str(path)!r} is no tokenizer: {error!r} where its pairs are read"
            ) from error
    return next((symbol for symbol, x in symbols.items() if x == name), None)


def _between(path: Path, pieces: list[dict[str, dict[str, Any]]]) -> str | None:
    """The name of the symbol between the sequences A and B of a template."""
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

"""Texts as tokens: the tokenizer beside a checkpoint, by the optional package `tokenizers`.

`tokenizer.json` says all of it. A `vocab.txt` alone is one of two things: letters, as protein
models have them, where every entry that is no special symbol is one letter; or BERT's pieces
of words.
"""

import dataclasses
import importlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from jax_models.arguments import expect_kind, show
from jax_models.errors import InputError
from jax_models.format.pretrained.folder import read_json

WHOLE, LISTED = "tokenizer.json", "vocab.txt"
# What else is said of special symbols.
BESIDE = ("tokenizer_config.json", "special_tokens_map.json")
# What sentence-transformers lower before anything else; their `max_seq_length` cuts texts,
# and nothing is cut here.
SENTENCES = "sentence_bert_config.json"
# The special symbols of a `vocab.txt`, as BERT and ESM-2 spell them, by what they do.
BRACKETED = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK)\]|<\w+>")
UNKNOWN, FIRST, LAST = ("[UNK]", "<unk>"), ("[CLS]", "<cls>"), ("[SEP]", "<eos>")
SHOWN = 32


@dataclasses.dataclass(frozen=True)
class Tokenizer:
    """A checkpoint's way from texts to tokens; `read_tokenizer` makes it.

    Attributes:
        names: The string of every symbol, in the order of their numbers.
        special: Symbols that stand for no text ([CLS], [PAD], <eos>), increasing: not to
            be replaced, and no substitutes.
        unknown: The symbol of what the vocabulary lacks; None where there is none.
    """

    names: tuple[str, ...]
    special: tuple[int, ...]
    unknown: int | None
    _core: Any = dataclasses.field(repr=False)

    def encode(self, text: str, *, allow_unknown: bool = True) -> np.ndarray:
        """Returns the tokens of a text, between those that the checkpoint puts around it.

        Args:
            text: the text; a special symbol's name in it is that symbol.
            allow_unknown: whether letters may be left to the symbol for unknown ones.

        Returns:
            Tokens [n], int32.

        Raises:
            InputError: for a text without tokens, and for an unknown letter if none is
                allowed.
        """
        expect_kind("text", text, str, "a string")
        try:
            found = self._core.encode(text)
        except (TypeError, ValueError) as error:  # half of a surrogate pair
            raise InputError(f"the text {show(text)} is not UTF-8") from error
        if not allow_unknown:
            known = np.zeros(len(text), bool)
            for symbol, (first, last) in zip(found.ids, found.offsets, strict=True):
                known[first:last] |= symbol != self.unknown
            for place, letter in enumerate(text):
                if not known[place] and not letter.isspace():
                    raise InputError(
                        f"{letter!r} at place {place + 1} is not in the vocabulary: "
                        f"{self._listed()}"
                    )
        if all(found.special_tokens_mask):
            raise InputError(f"the text {show(text)} has no tokens; expected some")
        return np.asarray(found.ids, np.int32)

    def name(self, symbol: int) -> str:
        """Returns the string of a symbol, its number where it has none."""
        return self.names[symbol] if symbol < len(self.names) else str(symbol)

    def symbol(self, name: str) -> int:
        """Returns the number of a symbol.

        Raises:
            InputError: the vocabulary does not have it.
        """
        if name not in self.names:
            raise InputError(f"{name!r} is not in the vocabulary: {self._listed()}")
        return self.names.index(name)

    def _listed(self) -> str:
        own = [name for at, name in enumerate(self.names) if at not in self.special]
        return " ".join(own[:SHOWN]) + (" ..." if len(own) > SHOWN else "")


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a checkpoint.

    Reads `tokenizer.json`, else `vocab.txt`, and of `tokenizer_config.json` and
    `special_tokens_map.json` beside it which symbols are special, of
    `sentence_bert_config.json` whether texts are lowered. Texts are neither padded nor cut.

    Args:
        path: the checkpoint's folder, or one of the two files under any name.

    Returns:
        The tokenizer.

    Raises:
        InputError: there is none, it is broken, or the package `tokenizers` is missing.
    """
    expect_kind("tokenizer", path, str | os.PathLike, "a path")
    path = Path(path)
    if path.is_dir():
        names = [name for name in (WHOLE, LISTED) if (path / name).is_file()]
        if not names:
            raise InputError(
                f"{str(path)!r} has neither {WHOLE} nor {LISTED}; name the folder or the "
                "file of the checkpoint's tokenizer"
            )
        path = path / names[0]
    elif not path.is_file():
        raise InputError(f"tokenizer {str(path)!r} is no file, and no folder")
    files = [path.with_name(name) for name in BESIDE]
    said = [read_json(file) for file in files if file.is_file()]
    package = _package()
    if path.suffix == ".json":
        try:
            core = package.Tokenizer.from_file(str(path))
        except Exception as error:  # of the package's own, of no class
            raise InputError(f"{str(path)!r} is no tokenizer: {error}") from error
    else:
        core = _of_vocabulary(package, path, said)
    sentences = path.with_name(SENTENCES)
    if sentences.is_file() and read_json(sentences).get("do_lower_case") is True:
        lower, own = package.normalizers.Lowercase(), core.normalizer
        both = [lower] if own is None else [lower, own]
        core.normalizer = package.normalizers.Sequence(both)
    core.no_padding()
    core.no_truncation()
    symbols = core.get_vocab(with_added_tokens=True)
    names = {symbol: name for name, symbol in symbols.items()}
    special = {k for k, x in core.get_added_tokens_decoder().items() if x.special}
    special |= {symbols[name] for name in _named_special(said) if name in symbols}
    stated = json.loads(core.to_str())["model"]
    unknown = symbols.get(stated.get("unk_token"), stated.get("unk_id"))
    return Tokenizer(
        tuple(names.get(k, str(k)) for k in range(max(names, default=-1) + 1)),
        tuple(sorted(special)),
        unknown,
        core,
    )


def _package() -> Any:
    try:
        return importlib.import_module("tokenizers")
    except ImportError as error:
        raise InputError(
            "texts need the package tokenizers, which is not installed; install it with: "
            "pip install 'attention-bounds[texts]'"
        ) from error


def _of_vocabulary(package: Any, path: Path, said: list[dict[str, Any]]) -> Any:
    """What splits texts into the entries of a `vocab.txt`."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{str(path)!r} is not UTF-8: {error}") from error
    entries = [line.rstrip("\r") for line in lines]
    entries = entries[:-1] if not entries[-1] else entries
    symbols = {name: symbol for symbol, name in enumerate(entries)}
    unknown, first, last = (
        next((name for name in names if name in symbols), None)
        for names in (UNKNOWN, FIRST, LAST)
    )
    if len(symbols) < len(entries) or unknown is None:
        raise InputError(
            f"{str(path)!r} has {len(entries)} lines, {len(symbols)} of them different; "
            f"expected a vocabulary of one symbol a line with {' or '.join(UNKNOWN)}"
        )
    special = [name for name in symbols if BRACKETED.fullmatch(name)]
    letters = all(len(name) == 1 for name in symbols if name not in special)
    lower = next(
        (x["do_lower_case"] for x in said if "do_lower_case" in x), not letters
    )
    ends = [(name, symbols[name]) for name in (first, last) if name is not None]
    parts = package.pre_tokenizers
    if letters:
        core = package.Tokenizer(package.models.WordLevel(symbols, unk_token=unknown))
        each = parts.Split(package.Regex("."), "isolated")
        core.pre_tokenizer = parts.Sequence([parts.WhitespaceSplit(), each])
        if lower is True:
            core.normalizer = package.normalizers.Lowercase()
    elif unknown == "[UNK]":
        core = package.Tokenizer(package.models.WordPiece(symbols, unk_token=unknown))
        core.pre_tokenizer = parts.BertPreTokenizer()
        core.normalizer = package.normalizers.BertNormalizer(
            lowercase=lower is not False
        )
    else:
        raise InputError(
            f"{str(path)!r} is neither of single letters nor of BERT's pieces of words; "
            f"expected a {WHOLE} beside it, which says how texts are split"
        )
    core.add_special_tokens(special)
    around = [first, "$A", last]
    core.post_processor = package.processors.TemplateProcessing(
        single=[piece for piece in around if piece is not None], special_tokens=ends
    )
    return core


def _named_special(said: list[dict[str, Any]]) -> list[str]:
    """The symbols that a configuration names by what they do."""
    found: list[Any] = []
    for one in said:
        found += [value for key, value in one.items() if key.endswith("_token")]
        listed = one.get("additional_special_tokens")
        found += listed if isinstance(listed, list) else []
    contents = [x.get("content") if isinstance(x, dict) else x for x in found]
    return [x for x in contents if isinstance(x, str)]

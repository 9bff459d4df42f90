"""Texts as tokens: the tokenizer beside a checkpoint, by the optional package `tokenizers`.

`tokenizer.json` is complete. A `vocab.txt` alone is of letters (of protein models), where
every entry is one letter or a special name in brackets, or of BERT's pieces of words.
"""

import dataclasses
import functools
import importlib
import json
import os
import re
import unicodedata
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int

from jax_models.arguments import (
    CONFIG_BYTES,
    BriefRepr,
    expect_file,
    expect_integer,
    expect_kind,
    has_file,
    read_file,
    show,
)
from jax_models.errors import InputError, InputWarning, errors_of
from jax_models.format.pretrained.folder import list_files, read_json
from jax_models.model.transformer import Transformer

WHOLE, LISTED = "tokenizer.json", "vocab.txt"
PAIRS = ("vocab.json", "merges.txt")  # of byte pairs, with which alone nothing is read
# Files that name special symbols.
BESIDE = ("tokenizer_config.json", "special_tokens_map.json")
# File of sentence-transformers that says whether texts are lowered first. Its
# `max_seq_length` is ignored: texts are not cut.
SENTENCES = "sentence_bert_config.json"
# Names in brackets, as BERT, IgLM and ESM-2 have them: special beside letters. Beside pieces
# of words those are that BERT has by what they do; the others ([unused1]) are pieces.
BRACKETED = re.compile(r"\[[^\[\]\s]+\]|<\w+>")
SPECIAL = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK)\]|<\w+>")
UNKNOWN, FIRST, LAST = ("[UNK]", "<unk>"), ("[CLS]", "<cls>"), ("[SEP]", "<eos>")
SHOWN = 32
# More than any vocabulary; names are counted through up to the largest number.
MOST_SYMBOLS = 2**22
# What reading JSON of another form than expected raises.
MALFORMED = (LookupError, TypeError, ValueError, AttributeError, StopIteration)
# Longest name of a vocabulary of letters: one letter, or a pair such as residue and shape.
LETTER = 2


@dataclasses.dataclass(frozen=True, repr=False)
class Tokenizer(BriefRepr):
    """A checkpoint's conversion of texts to tokens; `read_tokenizer` makes it.

    Attributes:
        names: The string of every symbol, in the order of their numbers.
        special: Symbols that stand for no text ([CLS], [PAD], <eos>), increasing: not to
            be replaced, and no substitutes.
        unknown: The symbol for letters or words that are not in the vocabulary; None if
            the tokenizer has none.
        named: Symbols that the vocabulary names, of those that `names` counts through.
    """

    names: tuple[str, ...]
    special: tuple[int, ...]
    unknown: int | None
    named: frozenset[int]
    _core: Any = dataclasses.field(repr=False)

    def encode(
        self, text: str, *, allow_unknown: bool | None = None
    ) -> Int[np.ndarray, "tokens"]:
        """Returns the tokens of a text, between those that the checkpoint puts around it.

        Lower-case letters that the vocabulary lacks are read as upper case where it has
        that (soft-masked sequences), and a warning counts them.

        Args:
            text: the text; a special symbol's name in it is that symbol.
            allow_unknown: whether what the vocabulary lacks is left to the symbol for it.
                By default a vocabulary of letters, whose names have one or two characters,
                allows none, and one of words any, which a warning counts.

        Returns:
            Tokens [n], int32.

        Raises:
            InputError: for a text that is no string, is not UTF-8 or has no tokens, and
                for an unknown letter or word if none is allowed.
        """
        expect_kind("text", text, str, "a string")
        return self.encode_all("text", {"": text}, allow_unknown=allow_unknown)[0]

    def encode_all(
        self,
        source: str,
        texts: Mapping[str, str],
        raise_case: bool = True,  # letters that only the vocabulary's upper case has
        **more: Any,
    ) -> list[Int[np.ndarray, "tokens"]]:
        """Returns each text's tokens; keys of `texts` say where in `source` a text is."""
        found = []
        for place, text in texts.items():
            with errors_of(f"{source}{place}"):
                found.append(self._read(text, raise_case, **more))
        unknown = None if self.unknown is None else self.names[self.unknown]
        for at, what in (
            (1, "lower-case letters, which the vocabulary lacks, read as upper case"),
            (2, f"words that the vocabulary lacks, read as {unknown or 'nothing'}"),
        ):
            if count := sum(one[at] for one in found):
                warnings.warn(f"{source}: {count} {what}", InputWarning, stacklevel=3)
        return [np.asarray(tokens, np.int32) for tokens, _, _ in found]

    def _read(
        self, text: str, raise_case: bool, allow_unknown: bool | None = None
    ) -> tuple[list[int], int, int]:
        """Tokens of a text, counts of letters read as upper case and of unknown runs."""
        text = text.removeprefix("\ufeff")  # a byte-order mark
        found, raised = self._split(text), 0
        unknown = [] if allow_unknown else self._unknown_places(text, found)
        if unknown and raise_case:
            letters, known = list(text), set("".join(self._own))
            for at in unknown:
                upper = text[at].upper() if text[at].isascii() else text[at]
                if text[at] not in known and upper in known:
                    letters[at], raised = upper, raised + 1
            upper = self._split("".join(letters))
            if self._count_special(upper) > self._count_special(found):
                raised = 0  # of a name that is none as it stands
            else:
                found = upper
                unknown = self._unknown_places("".join(letters), found)
        of_letters = max(map(len, self._own), default=LETTER + 1) <= LETTER
        if unknown and (of_letters or allow_unknown is False):
            raise InputError(
                f"{text[unknown[0]]!r} at place {unknown[0] + 1} is not in the vocabulary: "
                f"{self._listed()}"
            )
        if all(found.special_tokens_mask):
            raise InputError(f"the text {show(text)} has no tokens; expected some")
        return found.ids, raised, len(set(unknown).difference(x + 1 for x in unknown))

    def _split(self, text: str) -> Any:
        # The package's errors are of no class: half of a surrogate pair, for example.
        what = f"the text {show(text)} is not UTF-8, or cannot be split"
        with errors_of(what, Exception):
            return self._core.encode(text)

    def _count_special(self, found: Any) -> int:
        return int(np.isin(found.ids, self.special).sum())

    def _unknown_places(self, text: str, found: Any) -> list[int]:
        """Indices of characters, except white space, that only the unknown token covers."""
        known, covered = np.zeros((2, len(text)), bool)
        name = None if self.unknown is None else self.names[self.unknown]
        for symbol, (first, last) in zip(found.ids, found.offsets, strict=True):
            covered[first:last] = True
            known[first:last] |= symbol != self.unknown or text[first:last] == name
        # Normalizers drop marks and controls.
        return [
            x
            for x in np.flatnonzero(~known).tolist()
            if not text[x].isspace()
            and (covered[x] or unicodedata.category(text[x])[0] not in "CM")
        ]

    @functools.cached_property
    def _own(self) -> list[str]:
        """Names of symbols of text: neither special nor unknown, nor bracketed as "[CLS]"."""
        apart = {*self.special, self.unknown}
        names = (self.names[symbol] for symbol in sorted(self.named - apart))
        return [name for name in names if not BRACKETED.fullmatch(name)]

    def name(self, symbol: int) -> str:
        """Returns the name of a symbol, its number as a string if it has none."""
        return self.names[symbol] if symbol < len(self.names) else str(symbol)

    def symbol(self, name: str) -> int:
        """Returns the number of the symbol with a name.

        Raises:
            InputError: the vocabulary does not have it.
        """
        if name not in self.names:
            raise InputError(f"{name!r} is not in the vocabulary: {self._listed()}")
        return self.names.index(name)

    @functools.cached_property
    def ends(self) -> tuple[int, int]:
        """Counts of the special symbols before and after the tokens of every text."""
        masks = (self._core.encode(name).special_tokens_mask for name in self._own)
        mask = next((x for x in masks if 0 in x), [0])
        return mask.index(0), mask[::-1].index(0)

    def _listed(self) -> str:
        return " ".join(self._own[:SHOWN]) + " ..." * (len(self._own) > SHOWN)


def read_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Returns the tokenizer of a checkpoint.

    Reads `tokenizer.json` or `vocab.txt`, which symbols `tokenizer_config.json` and
    `special_tokens_map.json` call special, and whether `sentence_bert_config.json` lowers
    texts. They are neither padded nor cut.

    Args:
        path: the checkpoint's folder, or one of the two files under any name.

    Returns:
        The tokenizer.

    Raises:
        InputError: there is none, it is broken, or the package `tokenizers` is missing.
    """
    path = find_tokenizer(path)
    missing = (
        "texts need the package tokenizers, which is not installed; install it with: "
        "pip install 'attention-bounds[texts]'"
    )
    with errors_of(missing, ImportError):
        package: Any = importlib.import_module("tokenizers")
    names, special = read_symbols(path)
    if path.suffix == ".json":
        with errors_of(f"{str(path)!r} is no tokenizer", Exception):
            core = package.Tokenizer.from_file(str(path))
    else:
        core = _of_vocabulary(package, path)
    sentences = path.with_name(SENTENCES)
    if (
        has_file("file", sentences)
        and read_json(sentences).get("do_lower_case") is True
    ):
        both = [package.normalizers.Lowercase(), core.normalizer]
        core.normalizer = package.normalizers.Sequence([x for x in both if x])
    core.no_padding()
    core.no_truncation()
    stated = json.loads(core.to_str())["model"]
    name = stated.get("unk_token")
    unknown = stated.get("unk_id") if name is None else core.token_to_id(name)
    return Tokenizer(
        tuple(names.get(k, str(k)) for k in range(max(names, default=-1) + 1)),
        tuple(sorted(special)),
        unknown,
        frozenset(names),
        core,
    )


def find_tokenizer(path: str | os.PathLike[str]) -> Path:
    """Returns the file of a checkpoint's tokenizer, by the folder or by its own path."""
    expect_kind("tokenizer", path, str | os.PathLike, "a path")
    path = Path(path)
    if not path.is_dir():
        return expect_file("tokenizer", path)
    found = {x for x in (WHOLE, LISTED, *PAIRS) if has_file("tokenizer", path / x)}
    for name in (WHOLE, LISTED):
        if name in found:
            return path / name
    advice = "name the folder or the file of the checkpoint's tokenizer"
    if found.issuperset(PAIRS):
        advice = (
            f"{' with '.join(PAIRS)} is the older form of it: write {WHOLE} where "
            "transformers is: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )
    raise InputError(
        f"{str(path)!r} has neither {WHOLE} nor {LISTED}, but {list_files(path)}; {advice}"
    )


def read_symbols(
    path: Path, rows: int = MOST_SYMBOLS
) -> tuple[dict[int, str], set[int]]:
    """Names of a tokenizer's symbols by number, below `rows`, and the special symbols."""
    # Without the package `tokenizers`, which may not be installed.
    if path.suffix == ".json":
        stated: Any = read_json(path)
        with errors_of(f"{str(path)!r} is no tokenizer: in its vocabulary", *MALFORMED):
            listed = stated["model"]["vocab"]
            if isinstance(listed, list):  # pieces with their scores
                listed = {piece: symbol for symbol, (piece, _) in enumerate(listed)}
            added = stated.get("added_tokens") or []
            names = {symbol: name for name, symbol in listed.items()}
            names |= {x["id"]: x["content"] for x in added}
            special = {x["id"] for x in added if x.get("special")}
    else:
        entries = _entries(path)
        names, (_, listed) = dict(enumerate(entries)), _find_letters(entries)
        special = {k for k, name in names.items() if name in listed}
    if wrong := [x for x in names if type(x) is not int or not 0 <= x < rows]:
        expect_integer(f"number of a symbol of {str(path)!r}", wrong[0], 0, rows - 1)
    listed = set(_named_special(_configurations(path)))
    return names, special | {k for k, name in names.items() if name in listed}


def list_substitutes(
    free: Collection[int], named: Collection[int], special: Collection[int], path: str
) -> list[int]:
    """Returns symbols of `free` that are named and not special; warns of unnamed ones."""
    if unnamed := len(set(free).difference(named)):
        warnings.warn(
            f"{unnamed} rows of the embedding have no name in {path!r}: no text holds "
            "them, and none is substituted",
            InputWarning,
            stacklevel=3,
        )
    found = sorted(set(free).intersection(named).difference(special))
    if not found:
        raise InputError(
            f"{path!r} names no symbol that the model substitutes: it is of another model"
        )
    return found


def restrict_to_tokenizer(
    model: Transformer, tokenizer: Tokenizer | None, where: str
) -> Transformer:
    """Model with substitutable symbols limited to those of a tokenizer's texts."""
    if tokenizer is None:
        return model
    every, padding = range(model.vocab_size), model.padding and model.padding.symbol
    free = every if model.substitutable is None else model.substitutable
    free = list_substitutes(free, tokenizer.named, tokenizer.special, where)
    special = {*(model.special or ()), *tokenizer.special}.intersection(every)
    found = tuple(free), tuple(sorted(special.difference(free, (padding,))))
    if found == (model.substitutable, model.special):
        return model
    return dataclasses.replace(model, substitutable=found[0], special=found[1])


def _configurations(path: Path) -> list[dict[str, Any]]:
    files = [path.with_name(name) for name in BESIDE]
    return [read_json(file) for file in files if has_file("file", file)]


def _entries(path: Path) -> list[str]:
    """Lines of a `vocab.txt`: the names of symbols 0, 1, 2 and so on."""
    with errors_of(f"{str(path)!r} is not UTF-8", UnicodeDecodeError):
        content = read_file("vocabulary", path, CONFIG_BYTES).decode("utf-8-sig")
    entries = [line.rstrip("\r") for line in content.split("\n")]
    return entries[:-1] if not entries[-1] else entries


def _find_letters(entries: list[str]) -> tuple[bool, list[str]]:
    """Whether entries outside brackets are all single letters; the special entries."""
    named = [name for name in entries if BRACKETED.fullmatch(name)]
    letters = all(len(name) == 1 for name in set(entries).difference(named))
    return letters, named if letters else [x for x in named if SPECIAL.fullmatch(x)]


def _of_vocabulary(package: Any, path: Path) -> Any:
    """Tokenizer of the package `tokenizers` for a `vocab.txt`, by letters or word pieces."""
    entries, said = _entries(path), _configurations(path)
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
    letters, special = _find_letters(entries)
    cased = [x["do_lower_case"] for x in said if "do_lower_case" in x]
    lower = cased[0] if cased else not letters
    ends = [(name, symbols[name]) for name in (first, last) if name is not None]
    parts, norms = package.pre_tokenizers, package.normalizers
    if letters:
        core = package.Tokenizer(package.models.WordLevel(symbols, unk_token=unknown))
        each = parts.Split(package.Regex("."), "isolated")
        core.pre_tokenizer = parts.Sequence([parts.WhitespaceSplit(), each])
        if lower is True:
            core.normalizer = norms.Lowercase()
    elif unknown == "[UNK]":
        core = package.Tokenizer(package.models.WordPiece(symbols, unk_token=unknown))
        core.pre_tokenizer = parts.BertPreTokenizer()
        core.normalizer = norms.BertNormalizer(lowercase=lower is not False)
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
    """Names of special symbols, from the objects of a tokenizer's configuration files."""
    found: list[Any] = []
    for one in said:
        found += [value for key, value in one.items() if key.endswith("_token")]
        listed = one.get("additional_special_tokens")
        found += listed if isinstance(listed, list) else []
    contents = [x.get("content") if isinstance(x, dict) else x for x in found]
    return [x for x in contents if isinstance(x, str)]

"""A text file as one token sequence: byte values, or a model's own characters."""

import os
from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from jax_models.arguments import INPUT_BYTES, expect_kind, expect_sequence, read_file
from jax_models.errors import InputError


def read_text(
    path: str | os.PathLike[str], vocabulary: Sequence[str] | None = None
) -> Int[np.ndarray, "tokens"]:
    """Reads a text file as tokens; one final newline is dropped.

    Args:
        path: The file.
        vocabulary: The characters of the model in the order of their ids, read as
            UTF-8 without a byte-order mark; None takes the bytes of the file as ids 0 to 255.

    Returns:
        Tokens [n], int32, n >= 1.

    Raises:
        InputError: if the file cannot be read or is empty, is no UTF-8 or holds a
            character outside the vocabulary (the message gives its place), or if the
            vocabulary is not made of different single characters.
    """
    expect_kind("text file", path, str | os.PathLike, "a path")
    if vocabulary is not None and not isinstance(vocabulary, str):
        vocabulary = expect_sequence("vocabulary", vocabulary, "single characters")
    try:
        content = read_file("text file", path, INPUT_BYTES)
    except OSError as error:
        raise InputError(
            f"cannot read the text file {os.fspath(path)}: {error.strerror}"
        ) from error
    # Editors end a file with a newline, which is no symbol of the text.
    content = content.removesuffix(b"\n").removesuffix(b"\r")
    if not content:
        raise InputError(f"the text file {os.fspath(path)} is empty: n = 0 tokens")
    if vocabulary is None:
        return np.frombuffer(content, np.uint8).astype(np.int32)
    try:
        text = content.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise InputError(
            f"the text file {os.fspath(path)} is not UTF-8: byte "
            f"{content[error.start]:#04x} at offset {error.start}"
        ) from error
    return _indices(text, _character_ids(vocabulary), os.fspath(path))


def _character_ids(vocabulary: Sequence[str]) -> dict[str, int]:
    for token, entry in enumerate(vocabulary):
        if not isinstance(entry, str) or len(entry) != 1:
            raise InputError(
                "text needs a vocabulary of single characters, entry "
                f"{token} is {entry!r}; give the tokens as integers instead"
            )
    ids = {entry: token for token, entry in enumerate(vocabulary)}
    if len(ids) < len(vocabulary):
        raise InputError(
            "text needs a vocabulary of different characters, got "
            f"{len(vocabulary)} entries of which {len(ids)} differ"
        )
    return ids


def _indices(text: str, ids: dict[str, int], name: str) -> Int[np.ndarray, "tokens"]:
    tokens = np.fromiter((ids.get(character, -1) for character in text), np.int32)
    unknown = np.flatnonzero(tokens < 0)
    if unknown.size:
        place = int(unknown[0])
        before = text[:place]
        line, column = before.count("\n") + 1, place - (before.rfind("\n") + 1) + 1
        raise InputError(
            f"{name}: character {text[place]!r} at position {place} (line {line}, "
            f"column {column}) is not in the model's vocabulary "
            f"{' '.join(map(repr, ids))}"
        )
    return tokens

"""Longest input of a command's flags, known before JAX starts its devices."""

import contextlib
import os
from collections.abc import Iterable

from bounds.cli.shared.input_source import read_tokens
from bounds.cli.shared.texts import READERS, read_whole
from jax_models.errors import InputError
from jax_models.run.compiler import SAFE_ROWS, avoid_miscompilation, lacks_option

LENGTH_FLAGS = ("length", "lengths")
FILE_FLAGS = ("tokens", "text", *READERS)


def avoid_miscompiling(options: object) -> None:
    """Sets the compiler's option for inputs that are miscompiled without it.

    To be called before the first backend starts: XLA reads its options once.
    """
    if not lacks_option():  # no file is read in vain
        return
    named = getattr(options, "platform", None)
    if named in (None, "cpu") and longest_input(options) > SAFE_ROWS:
        avoid_miscompilation()


def longest_input(options: object) -> int:
    """Upper bound on the number of tokens of the longest input.

    A file of no more than `SAFE_ROWS` bytes counts by its size, since each token takes
    one byte; of a text each byte counts as a token. A file that cannot be read counts as
    empty: the command itself refuses it.
    """
    longest = len((getattr(options, "sequence", None) or "").encode())
    for name in LENGTH_FLAGS:
        value = getattr(options, name, None) or 0
        longest = max(longest, *(value if isinstance(value, tuple) else (value,)))
    for name in FILE_FLAGS:
        if path := getattr(options, name, None):
            with contextlib.suppress(InputError, OSError):
                longest = max(longest, _longest_in(name, path))
    return longest


def _longest_in(name: str, path: str) -> int:
    size = os.path.getsize(path)
    if size <= SAFE_ROWS:
        return size
    return max(_lengths_in(name, path), default=0)


def _lengths_in(name: str, path: str) -> Iterable[int]:
    """Upper bounds on the number of tokens of each input of a file."""
    if name == "tokens":
        return map(len, read_tokens(path))
    content = read_whole(name, path)
    texts = [("", content)] if name == "text" else READERS[name](path, content)
    return (len(text.encode()) for _, text in texts)

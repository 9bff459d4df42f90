"""Files of inputs: texts, FASTA, SMILES, and tokens as words or NumPy arrays."""

import os
from collections.abc import Callable

import numpy as np
from jaxtyping import Int, Shaped

from jax_models.arguments import INPUT_BYTES, ascii_number, expect_file, read_file, show
from jax_models.errors import InputError, errors_of

# Contents of files.
FASTA = "records, each a line with > and its name, and lines of letters"
SMILES = "one molecule a line, and its name behind it if it has one"


def read_whole(name: str, path: str) -> str:
    """Content of a text file, without a byte-order mark."""
    with errors_of(f"{path}: not a text in UTF-8", UnicodeDecodeError):
        content = read_file(f"--{name}", path, INPUT_BYTES).decode("utf-8-sig")
    return content.replace("\r\n", "\n").replace("\r", "\n")


def read_fasta(path: str) -> list[tuple[str, str]]:
    """Records of a FASTA file: pairs of a name, "" where there is none, and letters."""
    found: list[tuple[str, list[str]]] = []
    lines = read_whole("fasta", path).splitlines()
    for number, line in enumerate(map(str.strip, lines), 1):
        if line.startswith(">"):
            name, *_ = [*line[1:].split(), ""]
            found.append((name, []))
        elif line and not found:
            raise InputError(f"{path}: line {number} is {show(line)}; expected {FASTA}")
        elif line:
            found[-1][1].append("".join(line.split()))
    return [(name, "".join(lines)) for name, lines in found]


def fasta_names(path: str) -> list[str]:
    """Names of a FASTA file's records, or their numbers; refuses equal names."""
    names = [name or str(at) for at, (name, _) in enumerate(read_fasta(path))]
    first: dict[str, int] = {}
    for at, name in enumerate(names):
        if (before := first.setdefault(name, at)) < at:
            raise InputError(
                f"{path}: records {before} and {at} are both named {show(name)}, and "
                "share a table; give them different first words, or take one by --input"
            )
    return names


def read_smiles(path: str) -> list[tuple[str, str]]:
    """Molecules of a SMILES file: pairs of a name, "" where there is none, and SMILES."""
    lines = read_whole("smiles", path).splitlines()
    words = ([*line.split(), ""] for line in lines if line.strip())
    return [(name, molecule) for molecule, name, *_ in words]


def read_tokens(path: str) -> tuple[Int[np.ndarray, "tokens"], ...]:
    """Token sequences of a file: one of integers as text, or the rows of an array."""
    expect_file("token file", path)
    if os.fspath(path).endswith(".npy"):
        tokens = np.atleast_2d(load_array(path))
    else:
        content = read_file("token file", path, INPUT_BYTES)
        words = content.decode("utf-8-sig", errors="replace").split()
        tokens = np.empty((1, len(words)), np.int64)
        for place, word in enumerate(words):
            try:
                tokens[0, place] = int(ascii_number(word))
            except (ValueError, OverflowError):
                raise InputError(
                    f"{path}: {word[:40]!r} at position {place} is not a token; "
                    "expected integers separated by whitespace"
                ) from None
    if tokens.size == 0:
        raise InputError(f"{path}: no tokens (n = 0); an input has at least one")
    return tuple(tokens)


def load_array(path: str) -> Int[np.ndarray, "*inputs tokens"]:
    """Integers of a NumPy file, one row or several, as int64."""
    try:
        # Not `np.load`, which opens archives and pickles too.
        with open(path, "rb") as file:
            tokens = np.lib.format.read_array(file, allow_pickle=False)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # of many kinds: the header is parsed as Python
        raise InputError(f"{path}: not a NumPy array file ({error})") from error
    if tokens.dtype.kind not in "iu" or tokens.ndim not in (1, 2):
        raise InputError(
            f"{path}: expected integers, one row or several of a length, found "
            f"{tokens.dtype} of shape {list(tokens.shape)}"
        )
    return tokens.astype(np.int64)


def read_candidates(
    path: str, length: int, number: Callable[[str], int]
) -> Shaped[np.ndarray, "tokens symbols"]:
    """Substitutes listed for each position in a file, as symbols; -1 fills up rows."""
    expect_file("--candidates", path)
    if path.endswith(".npy"):
        found = load_array(path)
        if found.ndim != 2:
            raise InputError(
                f"{path}: integers of shape {list(found.shape)}; expected (n, K), a row "
                "of symbols for each position, filled up with -1"
            )
    else:
        rows = []
        for at, line in enumerate(read_whole("candidates", path).splitlines(), 1):
            with errors_of(f"{path}: line {at}"):
                rows.append(list(map(number, line.split())))
        found = np.full((len(rows), max(map(len, rows), default=0)), -1, object)
        for at, row in enumerate(rows):
            found[at, : len(row)] = row
    if len(found) != length:
        raise InputError(
            f"{path}: {len(found)} rows; expected one for each of the n = {length} "
            "positions of the input, empty or of -1 where nothing is put in"
        )
    return found

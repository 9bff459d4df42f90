"""From flags to inputs of models with a tokenizer: texts, letters, molecules."""

import os
from collections.abc import Callable

import jax_models as jm
from bounds.cli.shared.options import Group
from bounds.curves.inputs import GivenInputs
from jax_models.arguments import INPUT_BYTES, expect_file, read_file, show

# Flags of inputs of letters, of which none may be unknown.
LETTERS = ("fasta", "smiles", "sequence")


def open_tokenizer(options: Group) -> jm.Tokenizer | None:
    """Tokenizer of the options, or None."""
    named = getattr(options, "tokenizer", None)
    if named is not None:
        return jm.read_tokenizer(named)
    if not hasattr(options, "tokenizer"):
        return None
    model = getattr(options, "model", None)
    texts = [x for x in (*LETTERS, "text") if getattr(options, x, None) is not None]
    if texts and model is not None and os.path.isdir(model):
        return jm.read_tokenizer(model)
    if texts and texts != ["text"]:
        if model is not None:  # the folder itself may be missing
            expect_file("--model", model)
        raise jm.InputError(
            f"--{texts[0]} needs a tokenizer; name the folder of a checkpoint as --model, "
            "or its folder or file as --tokenizer"
        )
    return None


def read_letters(name: str, value: str, tokenizer: jm.Tokenizer) -> GivenInputs:
    """Inputs that a flag of `LETTERS` gives."""
    if name == "sequence":
        tokens = tokenizer.encode_all("--sequence", {"": value})
        return GivenInputs("--sequence", tuple(tokens), tokenizer.ends)
    content = read_whole(name, value)
    found = READERS[name](value, content)
    if not found:
        raise jm.InputError(f"{value}: the file is empty; expected {EXPECTED[name]}")
    # In molecules the case of an atom marks aromaticity.
    texts = {f": {where}": text for where, text in found}
    tokens = tokenizer.encode_all(value, texts, raise_case=name != "smiles")
    return GivenInputs(value, tuple(tokens), tokenizer.ends)


def record_names(options: Group) -> list[str]:
    """Names of the records of `--fasta`, or their numbers; none of other inputs."""
    path = getattr(options, "fasta", None)
    if path is None:
        return []
    found = [name for name, _ in _records(path, read_whole("fasta", path))]
    return [x.partition("(")[2][:-1] or x.removeprefix("record ") for x in found]


def read_text_whole(path: str, tokenizer: jm.Tokenizer) -> GivenInputs:
    """A file as one text, without its last newline."""
    content = read_whole("text", path).removesuffix("\n").removesuffix("\r")
    tokens = tokenizer.encode_all(path, {"": content})
    return GivenInputs(path, tuple(tokens), tokenizer.ends)


def read_whole(name: str, path: str) -> str:
    """Content of a text file, without a byte-order mark."""
    try:
        content = read_file(f"--{name}", path, INPUT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise jm.InputError(f"{path}: not a text in UTF-8 ({error})") from error
    return content.replace("\r\n", "\n").replace("\r", "\n")


def _records(path: str, content: str) -> list[tuple[str, str]]:
    """Records of a FASTA file, each with its name."""
    found: list[tuple[str, list[str]]] = []
    for number, line in enumerate(map(str.strip, content.splitlines()), 1):
        if line.startswith(">"):
            header = line[1:].split()
            name = f" ({header[0]})" if header else ""
            found.append((f"record {len(found)}{name}", []))
        elif line and not found:
            raise jm.InputError(
                f"{path}: line {number} is {show(line)}; expected {EXPECTED['fasta']}"
            )
        elif line:
            found[-1][1].append("".join(line.split()))
    return [(name, "".join(lines)) for name, lines in found]


def _molecules(path: str, content: str) -> list[tuple[str, str]]:
    """Molecules of a SMILES file, each with its name."""
    del path
    lines = [line.split() for line in content.splitlines() if line.strip()]
    return [
        (f"molecule {at}" + (f" ({line[1]})" if len(line) > 1 else ""), line[0])
        for at, line in enumerate(lines)
    ]


READERS: dict[str, Callable[[str, str], list[tuple[str, str]]]] = {
    "fasta": _records,
    "smiles": _molecules,
}
EXPECTED = {
    "fasta": "records, each a line with > and its name, and lines of letters",
    "smiles": "one molecule a line, and its name behind it if it has one",
}

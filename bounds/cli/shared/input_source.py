"""From flags to inputs: sampled strings, a file of tokens, or texts."""

import dataclasses
import os
from typing import Any

import numpy as np
from jaxtyping import Int

import jax_models as jm
from bounds.cli.shared.groups import RECORDS, Inputs, Model, Texts
from bounds.curves import inputs
from jax_models import languages
from jax_models.arguments import INPUT_BYTES, ascii_number, expect_file, read_file, show
from jax_models.constructions import PRESET_LANGUAGES
from jax_models.run.evaluate import check_tokens

# Flags of inputs of letters, of which none may be unknown.
LETTERS = (*RECORDS, "sequence")


def open_tokenizer(options: Inputs) -> jm.Tokenizer | None:
    """Tokenizer that --tokenizer names, or that of the model's folder for texts; or None."""
    if not isinstance(options, Texts):
        return None
    if options.tokenizer is not None:
        return jm.read_tokenizer(options.tokenizer)
    name, model = options.input_flag, options.model
    if name in (*LETTERS, "text") and model is not None and os.path.isdir(model):
        return jm.read_tokenizer(model)
    if name in LETTERS:
        if model is not None:  # the folder itself may be missing
            expect_file("--model", model)
        raise jm.InputError(
            f"--{name} needs a tokenizer; name the folder of a checkpoint as --model, "
            "or its folder or file as --tokenizer"
        )
    return None


def _read_texts(name: str, value: str, tokenizer: jm.Tokenizer) -> inputs.GivenInputs:
    """Inputs of the texts that the flag `name` gives by `value`."""
    where = value
    if name == "sequence":
        where, texts = "--sequence", {"": value}
    elif name == "text":
        texts = {"": read_whole("text", value).removesuffix("\n")}
    else:
        found = READERS[name](value)
        if not found:
            raise jm.InputError(
                f"{value}: the file is empty; expected {EXPECTED[name]}"
            )
        texts = {
            f": {NOUNS[name]} {at}{own and f' ({own})'}": text
            for at, (own, text) in enumerate(found)
        }
    # In molecules the case of an atom marks aromaticity.
    tokens = tokenizer.encode_all(where, texts, raise_case=name != "smiles")
    return inputs.GivenInputs(where, tuple(tokens), tokenizer.ends)


def record_names(options: Texts) -> list[str]:
    """Names of the records of `--fasta`, or their numbers; [] without the flag."""
    if options.fasta is None:
        return []
    found = _records(options.fasta)
    return [name or str(at) for at, (name, _) in enumerate(found)]


def read_whole(name: str, path: str) -> str:
    """Content of a text file, without a byte-order mark."""
    try:
        content = read_file(f"--{name}", path, INPUT_BYTES).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise jm.InputError(f"{path}: not a text in UTF-8 ({error})") from error
    return content.replace("\r\n", "\n").replace("\r", "\n")


def _records(path: str) -> list[tuple[str, str]]:
    """Records of a FASTA file: pairs of a name, "" where there is none, and letters."""
    found: list[tuple[str, list[str]]] = []
    lines = read_whole("fasta", path).splitlines()
    for number, line in enumerate(map(str.strip, lines), 1):
        if line.startswith(">"):
            name, *_ = [*line[1:].split(), ""]
            found.append((name, []))
        elif line and not found:
            raise jm.InputError(
                f"{path}: line {number} is {show(line)}; expected {EXPECTED['fasta']}"
            )
        elif line:
            found[-1][1].append("".join(line.split()))
    return [(name, "".join(lines)) for name, lines in found]


def _molecules(path: str) -> list[tuple[str, str]]:
    """Molecules of a SMILES file: pairs of a name, "" where there is none, and SMILES."""
    lines = read_whole("smiles", path).splitlines()
    words = ([*line.split(), ""] for line in lines if line.strip())
    return [(name, molecule) for molecule, name, *_ in words]


READERS = {"fasta": _records, "smiles": _molecules}
NOUNS = {"fasta": "record", "smiles": "molecule"}
EXPECTED = {
    "fasta": "records, each a line with > and its name, and lines of letters",
    "smiles": "one molecule a line, and its name behind it if it has one",
}


# Symbols of a random model for random inputs, where no flag gives their number.
BITS = 2


def num_symbols(options: Model) -> int:
    """Number of symbols that a random model needs for the inputs of the flags, if any."""
    if not isinstance(options, Inputs):
        return BITS
    tokenizer = open_tokenizer(options)
    if tokenizer is not None:
        return len(tokenizer.names)
    given = read_given(options, None)
    if given is not None:
        return max(1, *(int(sequence.max()) + 1 for sequence in given.sequences))
    language = languages.LANGUAGES.get(options.language or "")
    return BITS if language is None else len(language.symbols)


def load_inputs(
    options: Inputs, model: jm.Transformer, count: int
) -> inputs.InputSource:
    """Source of the inputs that the flags give, or else samples of a language."""
    given = read_given(options, model.vocabulary)
    if given is not None:
        return check_given(given, model)
    own = None if options.language else PRESET_LANGUAGES.get(options.preset or "")
    language = own or options.language or "random"
    free = model.substitutable or range(BITS)
    of_texts = model.special is not None or not set(range(BITS)).issubset(free)
    if of_texts and "language" not in options.given:
        language = "random"  # a checkpoint has the symbols of none of the languages
    samples = inputs.sampled_inputs(model, language, count, options.seed)
    return inputs.NeighbourInputs(samples) if own else samples


def check_given(given: inputs.GivenInputs, model: jm.Transformer) -> inputs.GivenInputs:
    """Given inputs without padding; raises `InputError` for a token the model lacks."""
    sequences = []
    for sequence in given.sequences:
        try:
            check_tokens(model.vocab_size, sequence)
            leave = None if model.padding is None else model.padding.leave
            sequences.append(sequence if leave is None else leave(sequence))
        except jm.InputError as error:
            raise jm.InputError(f"{given.name}: {error}") from error
    return dataclasses.replace(given, sequences=tuple(sequences))


def read_source(name: str, probability: float) -> tuple[languages.Source, str]:
    """Source of a known name or an automaton's file, and its text in keys of results."""
    if name in languages.SOURCES:
        return languages.get_source(name, probability), name
    language = languages.RegularLanguage.read(name)
    return language.source(probability), language.text


def read_given(
    options: Inputs, vocabulary: tuple[str, ...] | None
) -> inputs.GivenInputs | None:
    """Inputs that the flags give, or None if they give none."""
    name = options.input_flag
    if name is None:
        return None
    file: Any = getattr(options, name)
    tokenizer = open_tokenizer(options)
    if name == "tokens":
        return inputs.GivenInputs(file, read_tokens(file))
    if tokenizer is not None:
        return _read_texts(name, file, tokenizer)
    expect_file("text file", file)
    return inputs.GivenInputs(file, (languages.read_text(file, vocabulary),))


def read_tokens(path: str) -> tuple[Int[np.ndarray, "tokens"], ...]:
    """Token sequences of a file: one of words, or the rows of a NumPy array."""
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
                raise jm.InputError(
                    f"{path}: {word[:40]!r} at position {place} is not a token; "
                    "expected integers separated by whitespace"
                ) from None
    if tokens.size == 0:
        raise jm.InputError(f"{path}: no tokens (n = 0); an input has at least one")
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
        raise jm.InputError(f"{path}: not a NumPy array file ({error})") from error
    if tokens.dtype.kind not in "iu" or tokens.ndim not in (1, 2):
        raise jm.InputError(
            f"{path}: expected integers, one row or several of a length, found "
            f"{tokens.dtype} of shape {list(tokens.shape)}"
        )
    return tokens.astype(np.int64)

"""Sources of inputs for a sweep over lengths: sampled strings, or given sequences.

A source gives the same tokens for the same length and index whatever else is drawn, so
that a sweep can be resumed, extended, or run in another order.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Protocol, Self, runtime_checkable

import jax
import numpy as np
from jaxtyping import Int

from jax_models.arguments import (
    MAX_LENGTH,
    expect_integer,
    expect_integers,
    expect_length,
    show,
)
from jax_models.errors import InputError, errors_of
from jax_models.format.input_files import (
    FASTA,
    SMILES,
    read_fasta,
    read_smiles,
    read_whole,
)
from jax_models.format.model_check import check_model
from jax_models.format.pretrained.tokenizer import Tokenizer
from jax_models.languages import Language, get_language
from jax_models.model.transformer import Transformer
from jax_models.run.device_memory import PYTHON_STEP, require_operations
from jax_models.run.evaluate import check_tokens

RANDOM = "random"
DRAWS = 16  # samples that are looked at for a member of the language


@runtime_checkable
class InputSource(Protocol):
    """Source of inputs, drawn by length and index, at the lengths that it has."""

    @property
    def name(self) -> str:
        """Name of the source for messages, in a word or two."""
        ...

    @property
    def count(self) -> int:
        """Number of inputs at each length; `draw` takes an `index` below it."""
        ...

    def draw(self, length: int, index: int) -> Int[np.ndarray, "tokens"]:
        """Tokens of the input number `index`, `length` of them."""
        ...


@dataclasses.dataclass(frozen=True)
class SampledInputs:
    """Strings of a language, sampled with a seed; see `sampled_inputs`.

    Attributes:
        language: A name that `jax_models.languages` knows, or "random".
        symbols: The ids of the language's symbols, in their order.
        end: The id of the end token that follows the string, if any.
        count: Number of strings at each length.
        seed: Seed; string `index` of length n is drawn from it, n and the index alone.
    """

    language: str
    symbols: tuple[int, ...]
    end: int | None
    count: int
    seed: int

    @property
    def name(self) -> str:
        """The language's name."""
        return self.language

    def draw(self, length: int, index: int) -> Int[np.ndarray, "tokens"]:
        """Tokens of string number `index`, `length` of them with the end token."""
        # The second stream of the seed: the first makes the weights of random models.
        key = jax.random.fold_in(jax.random.key(self.seed), 1)
        key = jax.random.fold_in(jax.random.fold_in(key, length), index)
        symbols = len(self.symbols) if self.language == RANDOM else None
        language = get_language(self.language, symbols)
        (string,) = np.asarray(
            language.sample(key, length, 1, end=self.end is not None)
        )
        # A language numbers its symbols from 0, with the end token behind them.
        ids = (*self.symbols, self.end if self.end is not None else -1)
        return np.asarray(ids, np.int32)[string]


@dataclasses.dataclass(frozen=True)
class NeighbourInputs:
    """Members of a language, and strings one symbol away from a member.

    Inputs of even index are members, unless they equal input 0; the others have one symbol
    replaced: the last of input 1, the first of input 3, then some spread over the string.
    Where `DRAWS` samples hold no member (of an odd length, say), the first sample takes its
    place.
    """

    samples: SampledInputs

    @property
    def name(self) -> str:
        """The language's name, with its neighbours."""
        return f"{self.samples.name} and one-symbol neighbours"

    @property
    def count(self) -> int:
        """Number of inputs at each length."""
        return self.samples.count

    def draw(self, length: int, index: int) -> Int[np.ndarray, "tokens"]:
        """Tokens of input number `index`, `length` of them with the end token."""
        tokens = self._member(length, index)
        size = length - (self.samples.end is not None)
        new = index % 2 == 0 and (tokens != self._member(length, 0)).any()
        if index == 0 or size == 0 or new:
            return tokens
        # Multiples of the golden ratio, modulo 1, stay apart.
        place = {1: size - 1, 3: 0}.get(index, int(index * 0.618034 % 1 * size))
        others = [x for x in self.samples.symbols if x != tokens[place]]
        tokens[place] = others[index // 2 % len(others)]
        return tokens

    def _member(self, length: int, index: int) -> Int[np.ndarray, "tokens"]:
        # Every index has samples of its own.
        draws = range(DRAWS * index, DRAWS * (index + 1))
        strings = (self.samples.draw(length, k) for k in draws)
        members = filter(get_language(self.samples.language).contains, strings)
        return next(members, self.samples.draw(length, draws[0]))


@dataclasses.dataclass(frozen=True)
class GivenInputs:
    """Given token sequences; a shorter length takes their first tokens.

    Attributes:
        name: Name of their source.
        sequences: Tokens of each input.
        ends: Number of symbols that every sequence begins and ends with, as [CLS] and
            [SEP]: a shorter length keeps them around the first of the others.
    """

    name: str
    sequences: tuple[Int[np.ndarray, "_"], ...]
    ends: tuple[int, int] = (0, 0)

    @property
    def count(self) -> int:
        """Number of sequences."""
        return len(self.sequences)

    def draw(self, length: int, index: int) -> Int[np.ndarray, "tokens"]:
        """Tokens of sequence number `index`, cut to `length` between its ends."""
        sequence, around = self.sequences[index], sum(self.ends)
        if length <= around:
            raise InputError(
                f"length n = {length} leaves no token of {self.name} between the "
                f"{around} that stand around every text; expected {around + 1} or more"
            )
        if length > len(sequence):
            raise InputError(
                f"length n = {length} is more than the {len(sequence)} tokens of input "
                f"{index} of {self.name}"
            )
        last = self.ends[1]
        kept = sequence[: length - last], sequence[len(sequence) - last :]
        return np.concatenate(kept).astype(np.int32)

    def fit(self, model: Transformer) -> Self:
        """The sequences without padding; `InputError` for tokens the model lacks."""
        fitting = []
        for sequence in self.sequences:
            with errors_of(self.name):
                check_tokens(model.vocab_size, sequence)
                padding = model.padding
                fitting.append(padding.leave(sequence) if padding else sequence)
        return dataclasses.replace(self, sequences=tuple(fitting))


# By kind of a file of texts: its reader, the noun of a text, and the expected content.
_FILES = {
    "fasta": (read_fasta, "record", FASTA),
    "smiles": (read_smiles, "molecule", SMILES),
}


def encode_texts(kind: str, given: str, tokenizer: Tokenizer) -> GivenInputs:
    """Token sequences of a text ("sequence") or a file ("text", "fasta", "smiles")."""
    where = given
    if kind == "sequence":
        where, texts = "--sequence", {"": given}
    elif kind == "text":
        texts = {"": read_whole(kind, given).removesuffix("\n")}
    else:
        read, noun, expected = _FILES[kind]
        found = read(given)
        if not found:
            raise InputError(f"{given}: the file is empty; expected {expected}")
        texts = {
            f": {noun} {at}{own and f' ({own})'}": text
            for at, (own, text) in enumerate(found)
        }
    # In molecules the case of an atom marks aromaticity.
    tokens = tokenizer.encode_all(where, texts, raise_case=kind != "smiles")
    return GivenInputs(where, tuple(tokens), tokenizer.ends)


def sampled_inputs(
    model: Transformer, language: str, count: int, seed: int
) -> SampledInputs:
    """Source of strings of a language, or of "random" symbols, as inputs of a model."""
    # The end token `$` follows each string where the model has one: a symbol beyond the
    # language's own that may not be substituted, and is not the padding. A model that lists
    # special symbols, as a checkpoint does, has none.
    expect_integer("num_inputs", count, 1)
    require_operations(f"{count} inputs", PYTHON_STEP * count)
    expect_integer("seed", seed, 0)
    check_model(model)
    if language == RANDOM:
        symbols, others = _substitutable(model), _others(model)
        # Of several symbols that no string holds none is known to be the end token.
        end = others.pop() if len(others) == 1 else None
        return SampledInputs(language, symbols, end, count, seed)
    known = get_language(language)
    symbols = tuple(range(len(known.symbols)))
    return SampledInputs(language, symbols, end_after(model, known), count, seed)


def end_after(model: Transformer, language: Language) -> int | None:
    """Id of the end token that a model has after a language's symbols, or None."""
    symbols, end = set(range(len(language.symbols))), len(language.symbols)
    size = check_model(model).vocab_size
    if end > size:
        raise InputError(
            f"{language.name} has {end} symbols, the model's vocabulary has "
            f"{size}; use a model with vocab_size >= {end}, or other inputs"
        )
    if apart := sorted(symbols.difference(_substitutable(model))):
        raise InputError(
            f"{language.name} is written in symbols 0 to {end - 1}, of which the model "
            f"does not substitute {apart[0]} (special, or padding): use random strings, "
            "or inputs of your own"
        )
    return end if end in _others(model) else None


def _substitutable(model: Transformer) -> tuple[int, ...]:
    free = model.substitutable
    return tuple(range(model.vocab_size) if free is None else free)


def _others(model: Transformer) -> set[int]:
    """Symbols neither substitutable nor padding; empty if the model has special ones."""
    if model.special is not None or model.substitutable is None:
        return set()
    padding = None if model.padding is None else model.padding.symbol
    return set(range(model.vocab_size)) - {*model.substitutable, padding}


def open_inputs(
    model: Transformer, inputs: str | InputSource, count: int, seed: int
) -> InputSource:
    """Source `inputs`; for a language's name, a source of `count` sampled strings."""
    if isinstance(inputs, str):
        return sampled_inputs(model, inputs, count, seed)
    if not isinstance(inputs, InputSource):
        raise InputError(
            f"inputs = {show(inputs)}; expected the name of a language, or a source such "
            "as bounds.curves.inputs.GivenInputs"
        )
    return inputs


def own_lengths(source: InputSource) -> list[int]:
    """Distinct lengths of given sequences, increasing; refuses sampled inputs."""
    if not isinstance(source, GivenInputs):
        raise InputError(
            "lengths = None, but inputs have no length of their own; give lengths, or "
            "sequences as bounds.curves.inputs.GivenInputs"
        )
    return sorted({len(sequence) for sequence in source.sequences})


def draw_inputs(
    source: InputSource,
    lengths: Sequence[int] | None,
    chosen: Sequence[int] | None = None,
) -> dict[tuple[int, int], Int[np.ndarray, "tokens"]]:
    """Tokens of inputs by (length, index); by default all, at their own lengths."""
    indices = range(source.count) if chosen is None else chosen
    pairs = [(n, k) for n in lengths or own_lengths(source) for k in indices]
    if lengths is None:
        assert isinstance(source, GivenInputs)
        pairs = [(n, k) for n, k in pairs if n == len(source.sequences[k])]
    return {(n, k): source.draw(n, k) for n, k in pairs}


def check_lengths(lengths: Sequence[int]) -> list[int]:
    """Checked lengths; `InputError` unless they increase, within 1 to `MAX_LENGTH`."""
    found = expect_integers("lengths", lengths, 1, MAX_LENGTH)
    if not found:
        raise InputError("no lengths given")
    for shorter, longer in itertools.pairwise(found):
        if longer <= shorter:
            raise InputError(f"lengths must increase, but {longer} follows {shorter}")
    return found


def check_changeable(length: int) -> None:
    """Raise `InputError` unless a position other than the query can be changed."""
    if expect_length(length) < 2:
        raise InputError(
            f"length n = {length}; with the query left out there is nothing to change "
            "below n = 2"
        )

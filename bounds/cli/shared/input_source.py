"""From flags to inputs: sampled strings, a file of tokens, or texts."""

import os
from typing import Any

import jax_models as jm
from bounds.cli.shared.groups import RECORDS, Inputs, Model, Texts
from bounds.curves import inputs
from jax_models import languages
from jax_models.arguments import expect_file
from jax_models.constructions import PRESET_LANGUAGES
from jax_models.format.input_files import read_tokens

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


# Symbols of a random model for random inputs, where no flag gives their number.
BITS = 2


def num_symbols(options: Model) -> int:
    """Number of symbols of a random model that the flags' inputs need, or `BITS`."""
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
        return given.fit(model)
    own = None if options.language else PRESET_LANGUAGES.get(options.preset or "")
    language = own or options.language or "random"
    free = model.substitutable or range(BITS)
    of_texts = model.special is not None or not set(range(BITS)).issubset(free)
    if of_texts and "language" not in options.given:
        language = "random"  # a checkpoint has the symbols of none of the languages
    samples = inputs.sampled_inputs(model, language, count, options.seed)
    return inputs.NeighbourInputs(samples) if own else samples


def read_given(
    options: Inputs, vocabulary: tuple[str, ...] | None
) -> inputs.GivenInputs | None:
    """Inputs from the file or text that a flag names; None if they are to be sampled."""
    name = options.input_flag
    if name is None:
        return None
    file: Any = getattr(options, name)
    tokenizer = open_tokenizer(options)
    if name == "tokens":
        return inputs.GivenInputs(file, read_tokens(file))
    if tokenizer is not None:
        return inputs.encode_texts(name, file, tokenizer)
    expect_file("text file", file)
    return inputs.GivenInputs(file, (languages.read_text(file, vocabulary),))

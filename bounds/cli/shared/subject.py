"""From flags to the subject of a command: a model, its inputs, and the question."""

from collections.abc import Sequence
from typing import Any

import jax_models as jm
from bounds.cli.shared.groups import Inputs, OneInput
from bounds.cli.shared.input_source import (
    check_given,
    load_inputs,
    num_symbols,
    open_tokenizer,
    read_given,
)
from bounds.cli.shared.model_source import model_sha256, refuse_ties, weighted_model
from bounds.cli.shared.target import number_symbol, parse_target
from bounds.curves.inputs import GivenInputs, InputSource, draw_inputs, own_lengths
from bounds.curves.measurement import Question, Subject
from bounds.influence import Incremental, Proposed, Screened
from bounds.influence.method import Way
from bounds.influence.substitution import check_query, choose_query
from bounds.influence.targets.log_probability_sum import InputSum
from bounds.influence.targets.table import check_target
from bounds.numbers.notation import parse_bytes
from jax_models.model.transformer import encode_positions

DEFAULT_LENGTH = 64


def read_one(options: OneInput, first: Subject | None = None) -> Subject:
    """Subject of one input; files of several and of their model are read for the first."""
    read = first.source if first is not None else None
    given = read if isinstance(read, GivenInputs) else read_given(options, None)
    length = options.length or DEFAULT_LENGTH
    sequence = None
    if given is not None and options.length is None:
        sequence = given.sequences[min(options.input, given.count - 1)]  # else refused
        length = len(sequence)
    # Random models and constructions may depend on the length.
    shared = first if options.model is not None else None
    if shared is None:
        symbols = num_symbols(options)
        model = weighted_model(options, vocab_size=symbols, max_length=length)
    else:
        model = shared.model
    refuse_ties(options, [model])
    if sequence is not None and model.padding is not None:
        length = model.padding.leave(sequence).size
    hashed = None if shared is None else shared.model_sha256
    if given is not read and options.text is None:  # a text depends on the vocabulary
        read = given and check_given(given, model)
    return read_subject(options, model, [length], hashed, read)


def read_subject(
    options: Inputs,
    model: jm.Transformer,
    lengths: Sequence[int] | None,
    hashed: str | None = None,  # of the model, where it is known
    source: InputSource | None = None,  # the inputs, where they are read
) -> Subject:
    """Subject at the given lengths, or at those of given inputs."""
    one = getattr(options, "input", None)
    count = getattr(options, "num_inputs", 1) if one is None else one + 1
    source = source or load_inputs(options, model, count)
    measured = own_lengths(source) if lengths is None else lengths
    try:  # refuses a length beyond a table, or the memory
        encode_positions(model, measured[-1])
    except jm.InputError as error:
        if lengths is not None or not isinstance(source, GivenInputs):
            raise
        which = max(range(source.count), key=lambda k: len(source.sequences[k]))
        raise jm.InputError(f"input {which} of {source.name}: {error}") from error
    # Values without a flag of this command keep their defaults.
    names = ("query", "target", "ties", "memory_limit")
    given: dict[str, Any] = {
        x: getattr(options, x) for x in names if hasattr(options, x)
    }
    if limit := given.get("memory_limit"):
        given["memory_limit"] = parse_bytes(limit)
    if hasattr(options, "method"):
        given["method"] = read_method(options)
    tokenizer = open_tokenizer(options)
    if "target" in given:
        given["target"] = parse_target(
            given["target"], lambda name: number_symbol(name, tokenizer, "--target")
        )
    given["query"] = choose_query(given.get("query"), model)
    check_query(given["query"], measured[0])
    if one is not None and one >= source.count:
        raise jm.InputError(
            f"--input={one}, but {source.name} holds {source.count} inputs, counted "
            "from 0"
        )
    inputs = draw_inputs(source, lengths, None if one is None else [one])
    target = given.get("target")
    if isinstance(target, InputSum):
        (tokens,) = inputs.values()
        special = () if tokenizer is None else tokenizer.special
        given["target"] = target.of_input(tokens, special)
    question = Question(**given)
    check_target(model, question.target)
    hashed = hashed or model_sha256(options, model)
    return Subject(model, hashed, source, inputs, question, options.seed)


def read_method(options: Any) -> Way | str:
    """Method with its options, or its name; what does not apply was refused (`used_if`)."""
    if (cheap := getattr(options, "propose", None)) is not None:
        return Proposed(cheap, options.method)
    if (half := getattr(options, "precision", None)) is not None:
        return Incremental(half)
    if options.method == "screened" and hasattr(options, "budget"):
        return Screened(options.rtol, options.budget or None)  # 0: as many as it takes
    return options.method

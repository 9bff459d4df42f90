"""From flags to the subject of a command: a model, its inputs, and the question.

The question is the options of a measurement: query (position whose output is read),
target (quantity read there), method of computing influences, ties of hard attention, and
memory. An influence is the change of the target when one token is replaced.
"""

import os
from collections.abc import Sequence
from typing import Any

import jax

import jax_models as jm
from bounds.cli.shared import input_source
from bounds.cli.shared.groups import SHAPE, Inputs, Model, OneInput
from bounds.curves.inputs import GivenInputs, InputSource, draw_inputs, own_lengths
from bounds.curves.measurement import Question, Subject, reweighted, weighting_label
from bounds.influence import Incremental, Proposed, Screened
from bounds.influence.method import Way
from bounds.influence.substitution import check_query, choose_query
from bounds.influence.targets.log_probability_sum import InputSum
from bounds.influence.targets.table import check_target, number_symbol, parse_target
from bounds.numbers.notation import parse_bytes
from bounds.store.output import file_sha256, sha256
from jax_models.constructions import build_preset
from jax_models.errors import InputError
from jax_models.format.pretrained.tokenizer import restrict_to_tokenizer
from jax_models.model.reweight import with_dtype
from jax_models.model.transformer import encode_positions


def load_model(
    options: Model,
    *,
    max_length: int,
    vocab_size: int | None = None,  # of a random model; by default as its inputs need
    num_classes: int | None = None,  # of a random model; None has no read-out
) -> jm.Transformer:
    """Model that the flags name or describe, in the float type of --dtype."""
    shape = {name: getattr(options, name) for name in SHAPE}
    if options.is_drawn:
        shape["vocab_size"] = (
            options.vocab_size or vocab_size or input_source.num_symbols(options)
        )
        # Drawn in float64 under any --dtype, so that both types round one model.
        model = jm.random_transformer(
            jax.random.key(options.seed),
            **shape,
            dtype="float64",
            architecture=jm.Architecture(
                max_length=max_length, num_classes=num_classes
            ),
        )
    elif options.model is None:
        assert options.preset is not None
        given = {name: shape[name] for name in SHAPE if name in options.given}
        if options.c is not None:
            given["c"] = options.c
        model = build_preset(options.preset, dtype="float64", **given)
    elif os.path.isdir(options.model):
        return jm.from_pretrained(
            options.model,
            dtype=options.dtype,
            head=options.head,
            tokenizer=getattr(options, "tokenizer", None),
        )
    else:
        model = jm.load(options.model)
    return with_dtype(model, options.dtype)


def weighted_model(
    options: Model, weighting: str | None = None, **sizes: Any
) -> jm.Transformer:
    """Model with the flags' attention weighting, or `weighting` if it is random."""
    model = load_model(options, **sizes)
    named = getattr(options, "weighting", None)
    if named is not None or not options.is_drawn:
        weighting = named
    return reweighted(model, weighting, getattr(options, "temperature", None))


def model_sha256(options: Model, model: jm.Transformer) -> str:
    """SHA-256 of a model's file as given, or of the file that `jm.save` would write."""
    if options.model is not None and not os.path.isdir(options.model):
        return file_sha256(options.model)
    return sha256(jm.model_bytes(model))


def name_model(options: Model, model: jm.Transformer) -> dict[str, str]:
    """Columns of results that identify a model: SHA-256 and weighting."""
    digest = model_sha256(options, model)
    return {"model_sha256": digest, "weighting": weighting_label(model)}


def refuse_sampling(options: Model, *names: str) -> None:
    """Raises `InputError` if an option of sampled inputs, in `names`, is given."""
    for name in options.given.intersection(names):
        if name != "seed" or not options.is_drawn:
            raise InputError(
                f"--{name} is of sampled inputs, and none is sampled: all inputs of the "
                "length count; leave it out"
            )


def read_one(options: OneInput, first: Subject | None = None) -> Subject:
    """Subject of one input; reuses the inputs and model that `first` read from files."""
    read = input_source.read_given
    given: Any = read(options, None) if first is None else first.source
    length = options.length or 64
    sequence = None
    if given is not None and options.length is None:
        sequence = given.sequences[min(options.input, given.count - 1)]  # else refused
        length = len(sequence)
    if first is not None and options.model is not None:
        model, hashed = first.model, first.model_sha256
    else:  # random models and constructions may depend on the length
        model, hashed = weighted_model(options, max_length=length), None
    if sequence is not None and model.padding is not None:
        length = model.padding.leave(sequence).size
    if options.text is not None:  # depends on the vocabulary, and is read with that
        given = None
    elif first is None and given is not None:
        given = given.fit(model)
    return read_subject(options, model, [length], hashed, given)


def read_subject(
    options: Inputs,
    model: jm.Transformer,
    lengths: Sequence[int] | None,
    hashed: str | None = None,  # of the model, where it is known
    source: InputSource | None = None,  # the inputs, where they are read
) -> Subject:
    """Subject with inputs of the given lengths; None takes the inputs' own lengths."""
    hashed = hashed or model_sha256(options, model)
    tokenizer = input_source.open_tokenizer(options)
    named_by = str(getattr(options, "tokenizer", None) or options.model)
    model = restrict_to_tokenizer(model, tokenizer, named_by)
    one = getattr(options, "input", None)
    count = getattr(options, "num_inputs", 1) if one is None else one + 1
    source = source or input_source.load_inputs(options, model, count)
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
        given["target"] = target.of_input(tokens, model.special or ())
    question = Question(**given)
    check_target(model, question.target)
    return Subject(model, hashed, source, inputs, question, options.seed)


def read_method(options: Any) -> Way | str:
    """Influence method with its options, or its name if the flags set no option."""
    if (cheap := getattr(options, "propose", None)) is not None:
        return Proposed(cheap, options.method)
    if (half := getattr(options, "precision", None)) is not None:
        return Incremental(half)
    if options.method == "screened" and hasattr(options, "budget"):
        return Screened(options.rtol, options.budget or None)  # 0: as many as it takes
    return options.method

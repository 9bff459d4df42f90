"""From flags to the subject of a command: a model, its inputs, and the question.

The question is the options of a measurement: query, target, method, ties and memory.
"""

import contextlib
import functools
import json
import os
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import safetensors

import jax_models as jm
from bounds.cli.shared import input_source
from bounds.cli.shared.groups import RANDOM, Inputs, Model, OneInput, Shape
from bounds.cli.shared.options import fields_of
from bounds.cli.shared.target import number_symbol, parse_target
from bounds.curves.inputs import GivenInputs, InputSource, draw_inputs, own_lengths
from bounds.curves.measurement import Question, Subject, reweighted, weighting_label
from bounds.influence import Incremental, Proposed, Screened
from bounds.influence.method import Way
from bounds.influence.substitution import check_query, choose_query
from bounds.influence.targets.log_probability_sum import InputSum
from bounds.influence.targets.table import check_target
from bounds.numbers.notation import parse_bytes
from bounds.store.output import file_sha256, sha256
from jax_models.arguments import MAX_LENGTH, expect_file, expect_integer
from jax_models.constructions import PRESETS, build_preset, preset_parameters
from jax_models.errors import InputError, InputWarning
from jax_models.format.pretrained.folder import read_json
from jax_models.model.reweight import with_dtype
from jax_models.model.transformer import encode_positions
from jax_models.weighting import WEIGHTINGS

# Options that describe a random model only.
SHAPE = (*fields_of(Shape), "vocab_size")


def load_model(
    options: Model,
    *,
    max_length: int,
    vocab_size: int = input_source.BITS,  # of a random model
    num_classes: int | None = None,  # of a random model; None has no read-out
) -> jm.Transformer:
    """Model that the flags name or describe, in the float type of --dtype."""
    check_model_flags(options)
    file, preset, c = options.model, options.preset, options.c
    shape: dict[str, Any] = {name: getattr(options, name) for name in SHAPE}
    given = {name: shape[name] for name in SHAPE if name in options.given}
    if options.is_drawn:
        shape["vocab_size"] = shape["vocab_size"] or vocab_size
        # Drawn in float64 under any --dtype, so that both types round one model.
        model = jm.random_transformer(
            jax.random.key(options.seed),
            **shape,
            dtype="float64",
            architecture=jm.Architecture(
                max_length=max_length, num_classes=num_classes
            ),
        )
    elif file is not None:
        if os.path.isdir(file):
            tokenizer = getattr(options, "tokenizer", None)
            given = {"dtype": options.dtype, "head": options.head}
            return jm.from_pretrained(file, **given, tokenizer=tokenizer)
        model = jm.load(file)
    else:
        sharpness = {} if c is None else {"c": c}
        assert preset is not None
        model = build_preset(preset, dtype="float64", **sharpness, **given)
    return with_dtype(model, options.dtype)


def check_model_flags(options: Model) -> None:
    """Raises `InputError` for contradictory or unknown options of a model."""
    file, preset, c = options.model, options.preset, options.c
    folder = file is not None and os.path.isdir(file)
    if file is not None and preset is not None:
        raise jm.InputError("give --model or --preset, not both")
    if preset not in (None, RANDOM, *PRESETS):
        raise jm.InputError(
            f"unknown preset {preset!r}; known are {', '.join((RANDOM, *PRESETS))}"
        )
    if options.head is not None and not folder:
        if file is not None:  # the folder itself may be missing
            expect_file("--model", file)
        raise jm.InputError(
            "--head is of a checkpoint, and --model names no folder; leave it out"
        )
    if c is not None and preset in (None, RANDOM):
        raise jm.InputError("--c is the sharpness of a construction; name its --preset")
    if not options.is_drawn:
        taken = () if preset is None else preset_parameters(preset)
        source = f"--preset {preset}" if file is None else f"--model {file}"
        for name in SHAPE:  # some constructions have layers and heads to choose
            if name in options.given and name not in taken:
                raise jm.InputError(
                    f"--{name} describes a random model (--preset=random), which "
                    f"{source} is not"
                )


def weighted_model(
    options: Model,
    *,
    max_length: int,
    vocab_size: int = input_source.BITS,
    weighting: str | None = None,
    num_classes: int | None = None,  # as in `load_model`
) -> jm.Transformer:
    """Model of the flags, with the flags' weighting and temperature."""
    model = load_model(
        options, max_length=max_length, vocab_size=vocab_size, num_classes=num_classes
    )
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
    """Columns that identify a model."""
    digest = model_sha256(options, model)
    return {"model_sha256": digest, "weighting": weighting_label(model)}


def has_attention(options: Any, hard: bool) -> bool:
    """Whether some model of the flags has hard, or soft, attention; reads no weights."""
    if named := options.weighting:
        names = (named,) if isinstance(named, str) else named
        return any(WEIGHTINGS[name].hard is hard for name in names)
    file, preset = (getattr(options, name, None) for name in ("model", "preset"))
    if file is None and preset in PRESETS:
        return _is_hard_preset(preset) is hard
    if file is None and preset in (None, RANDOM):
        return not hard or getattr(options, "is_main_job", False)
    if file is None or os.path.isdir(file):
        return file is None or not hard  # all families of checkpoints are soft
    try:
        with safetensors.safe_open(file, framework="np") as file:
            layers = json.loads(file.metadata()["config"])["layers"]
        names = {layer["weighting"] for layer in layers if "same_as" not in layer}
        return any(WEIGHTINGS[name].hard is hard for name in names)
    except Exception:  # of many kinds: the file may be anyone's, and is refused later
        return True


def refuse_sampling(options: Model, *names: str) -> None:
    """Raises `InputError` for an option of sampled inputs in `names`; all are listed."""
    for name in options.given.intersection(names):
        if name != "seed" or not options.is_drawn:
            raise InputError(
                f"--{name} is of sampled inputs, and of these lengths all inputs are "
                "listed; leave it out"
            )


@functools.cache
def _is_hard_preset(name: str) -> bool:
    """Whether a construction has hard attention, whatever its parameters."""
    # Traced, since its arrays would start a device before the flags choose one.
    return jax.eval_shape(partial(build_preset, name, dtype="float32")).is_hard


def read_trained_to(model: str) -> int | None:
    """Longest n that a model was trained on; None without a record of this model."""
    path, said = Path(model), {}
    record = (path if path.is_dir() else path.parent) / "train.json"
    with contextlib.suppress(InputError):
        said = read_json(record)
    end, digest = said.get("trained_to"), said.get("model_sha256")
    if end is None:
        return None
    if digest is not None and (path.is_dir() or digest != file_sha256(path)):
        warnings.warn(
            f"{str(record)!r} is of another model, so that no trained length is known; "
            "name it as --trained_to",
            InputWarning,
            stacklevel=2,
        )
        return None
    return expect_integer(f"trained_to of {str(record)!r}", end, 1, MAX_LENGTH)


def read_one(options: OneInput, first: Subject | None = None) -> Subject:
    """Subject of one input; reuses from `first` the inputs and the model that files gave."""
    read = first.source if first is not None else None
    given = (
        read
        if isinstance(read, GivenInputs)
        else input_source.read_given(options, None)
    )
    length = options.length or 64
    sequence = None
    if given is not None and options.length is None:
        sequence = given.sequences[min(options.input, given.count - 1)]  # else refused
        length = len(sequence)
    # Random models and constructions may depend on the length.
    shared = first if options.model is not None else None
    if shared is None:
        symbols = input_source.num_symbols(options)
        model = weighted_model(options, vocab_size=symbols, max_length=length)
    else:
        model = shared.model
    if sequence is not None and model.padding is not None:
        length = model.padding.leave(sequence).size
    hashed = None if shared is None else shared.model_sha256
    if given is not read and options.text is None:  # a text depends on the vocabulary
        read = given and input_source.check_given(given, model)
    return read_subject(options, model, [length], hashed, read)


def read_subject(
    options: Inputs,
    model: jm.Transformer,
    lengths: Sequence[int] | None,
    hashed: str | None = None,  # of the model, where it is known
    source: InputSource | None = None,  # the inputs, where they are read
) -> Subject:
    """Subject of inputs at the given lengths, or at given inputs' own if None."""
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
    tokenizer = input_source.open_tokenizer(options)
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
    """Method with its options, or its name; inapplicable options were refused before."""
    if (cheap := getattr(options, "propose", None)) is not None:
        return Proposed(cheap, options.method)
    if (half := getattr(options, "precision", None)) is not None:
        return Incremental(half)
    if options.method == "screened" and hasattr(options, "budget"):
        return Screened(options.rtol, options.budget or None)  # 0: as many as it takes
    return options.method

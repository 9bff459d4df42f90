"""From flags to a model: a file, a construction by name, or random weights."""

import contextlib
import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax

import jax_models as jm
from bounds.cli.shared.groups import RANDOM, Model, Shape
from bounds.cli.shared.input_source import BITS
from bounds.cli.shared.options import Group, fields_of
from bounds.curves.measurement import weighting_label
from bounds.curves.variants import reweighted
from bounds.store.output import file_sha256, sha256
from jax_models.arguments import MAX_LENGTH, expect_file, expect_integer
from jax_models.constructions import PRESETS, build_preset, preset_parameters
from jax_models.errors import InputError, InputWarning
from jax_models.format.pretrained.folder import read_json
from jax_models.model.reweight import with_dtype

# Options that describe a random model only.
SHAPE = (*fields_of(Shape), "vocab_size")


def load_model(
    options: Model,
    *,
    max_length: int,
    vocab_size: int = BITS,  # of a random model
    num_classes: int | None = None,  # of a random model; None has no read-out
) -> jm.Transformer:
    """Model of the flags, in their float type."""
    check_model_flags(options)
    file, preset, c = options.model, options.preset, options.c
    folder = file is not None and os.path.isdir(file)
    shape: dict[str, Any] = {name: getattr(options, name) for name in SHAPE}
    given = {name: shape[name] for name in SHAPE if options.is_given(name)}
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
        if folder:
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
    """Raises `InputError` for options of a model that contradict one another."""
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
        _refuse_shape((x for x in SHAPE if options.is_given(x)), taken, source)


def weighted_model(
    options: Model,
    *,
    max_length: int,
    vocab_size: int = BITS,
    weighting: str | None = None,
    num_classes: int | None = None,  # as in `load_model`
) -> jm.Transformer:
    """Model of the flags, under their weighting and temperature."""
    model = load_model(
        options, max_length=max_length, vocab_size=vocab_size, num_classes=num_classes
    )
    named = getattr(options, "weighting", None)
    if named is not None or not options.is_drawn:
        weighting = named
    return reweighted(model, weighting, getattr(options, "temperature", None))


def model_sha256(options: Model, model: jm.Transformer) -> str:
    """SHA-256 of a model's file; else of the file that `jm.save` would write.

    A file's hash does not depend on --dtype, --weighting and --temperature: a record names
    these separately.
    """
    if options.model is not None and not os.path.isdir(options.model):
        return file_sha256(options.model)
    return sha256(jm.model_bytes(model))


def name_model(options: Model, model: jm.Transformer) -> dict[str, str]:
    """Columns that identify a model."""
    digest = model_sha256(options, model)
    return {"model_sha256": digest, "weighting": weighting_label(model)}


def refuse_ties(options: Group, models: Iterable[jm.Transformer]) -> None:
    """Raises `InputError` if `--ties` is given and no model has hard attention."""
    if options.is_given("ties") and not any(model.is_hard for model in models):
        raise InputError(
            "--ties is of hard attention, which the model does not have; leave it out"
        )


def read_trained_to(model: str) -> int | None:
    """Longest n that a model was trained on; None without a record.

    Warns of a record of another model, since training data may have a file of this name.
    """
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


def _refuse_shape(given: Iterable[str], taken: Sequence[str], source: str) -> None:
    """Raises `InputError` for a flag that describes a random model only."""
    for name in given:
        if name not in taken:  # some constructions have layers and heads to choose
            raise jm.InputError(
                f"--{name} describes a random model (--preset=random), which {source} "
                "is not"
            )

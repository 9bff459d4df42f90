"""Flags that several commands share, each defined once.

A command adds the groups it needs to `FlagValues` of its own, not to absl's global ones.
"""

from collections.abc import Sequence

from absl import flags

from bounds.cli.shared.validators import (
    validate_choices,
    validate_grammar,
    validate_named,
)
from bounds.cli.shared.values import (
    LengthsParser,
    LengthsSerializer,
    define_count,
    define_number,
)
from bounds.curves.inputs import RANDOM
from bounds.influence.choice import METHOD_NAMES
from bounds.store.pictures import FORMATS
from jax_models.arguments import MAX_COUNT, ascii_number
from jax_models.constructions import PRESETS
from jax_models.languages import LANGUAGES
from jax_models.model.layer import NORM_PLACEMENTS
from jax_models.model.mask import MASKS
from jax_models.model.scores import SCORES
from jax_models.weighting import WEIGHTINGS

DTYPES = ("float64", "float32")
POSITIONS = ("sinusoidal", "table", "none")
SCALE = 1.0  # of a random model's weights

# Flags that describe a random model only.
SHAPE_FLAGS = (
    "num_layers",
    "num_heads",
    "d_model",
    "d_ff",
    "vocab_size",
    "mask",
    "score",
    "position",
    "layer_norm",
    "scale",
)


def define_output(values: flags.FlagValues, command: str) -> None:
    """Adds `--out`, `--overwrite` and `--seed`."""
    flags.DEFINE_string(
        "out",
        f"results/{command}",
        "Folder that the results are written to; made where there is none.",
        flag_values=values,
    )
    validate_named(values, "out", "a folder")
    flags.DEFINE_boolean(
        "overwrite",
        False,
        "Write over the files that another configuration left in --out.",
        flag_values=values,
    )
    define_count(values, "seed", 0, "Seed of the random weights and inputs.", 0)


def define_store(values: flags.FlagValues) -> None:
    """Adds `--fresh`."""
    flags.DEFINE_boolean(
        "fresh",
        False,
        "Compute everything again, ignoring what the store in --out holds.",
        flag_values=values,
    )


def define_figure(values: flags.FlagValues) -> None:
    """Adds `--figure_format`."""
    flags.DEFINE_list(
        "figure_format",
        ["png"],
        f"Formats of the figure: some of {', '.join(FORMATS)}.",
        flag_values=values,
    )
    validate_choices(values, "figure_format", FORMATS)


def define_integers(
    values: flags.FlagValues, name: str, text: str, what: str = "integers"
) -> None:
    """Adds a flag of integers from 0 to 2^31 - 1; `what` names them in errors."""
    flags.DEFINE_list(name, None, text, flag_values=values)

    def check(entries: list[str] | None) -> bool:
        try:
            return all(0 <= number <= MAX_COUNT for number in integers(entries) or ())
        except ValueError:
            return False

    flags.register_validator(
        name,
        check,
        f"expected {what} from 0 to {MAX_COUNT}, separated by commas",
        flag_values=values,
    )


def integers(entries: Sequence[str] | None) -> list[int] | None:
    """Value of a flag of `define_integers`; None where it was not given."""
    return None if entries is None else [int(ascii_number(entry)) for entry in entries]


def define_dtype(values: flags.FlagValues) -> None:
    """Adds `--dtype`."""
    flags.DEFINE_enum(
        "dtype",
        "float64",
        DTYPES,
        "Float type of the model and of the arithmetic.",
        flag_values=values,
    )


def define_model(values: flags.FlagValues, scale: float = SCALE) -> None:
    """Adds `--model`, `--preset` and the shape of a random model, not its weighting."""
    flags.DEFINE_string(
        "model",
        None,
        "Model file (safetensors), or a checkpoint's folder (docs/checkpoints.md).",
        flag_values=values,
    )
    validate_named(values, "model", "a file or a folder")
    define_head(values)
    flags.DEFINE_string(
        "preset",
        None,
        f"Instead of a file: random (the default), or {', '.join(PRESETS)}.",
        flag_values=values,
    )
    define_number(values, "c", None, "Construction: its sharpness c, where it has one.")
    define_count(
        values,
        "vocab_size",
        None,
        "Random model: symbols; by default those of the inputs.",
    )
    define_shape(values, scale)


def define_head(values: flags.FlagValues) -> None:
    """Adds `--head`."""
    flags.DEFINE_string(
        "head",
        None,
        "Checkpoint: what logits are read with (docs/checkpoints.md), or none; by default "
        "what its architecture has.",
        flag_values=values,
    )


def define_shape(values: flags.FlagValues, scale: float = SCALE) -> None:
    """Adds the shape of a random model, not its symbols nor its weighting."""

    def size(name: str, default: int, text: str) -> None:
        define_count(values, name, default, text)

    def choice(name: str, default: str, names: tuple[str, ...], text: str) -> None:
        flags.DEFINE_enum(name, default, names, text, flag_values=values)

    size("num_layers", 1, "Random model: number of layers.")
    size("num_heads", 2, "Random model: attention heads per layer.")
    size("d_model", 16, "Random model: width of the activations.")
    size("d_ff", 64, "Random model: neurons of each feed-forward layer.")
    choice("mask", "future", MASKS, "Random model: mask; future is causal.")
    choice(
        "score", "scaled_dot_product", tuple(SCORES), "Random model: attention score."
    )
    choice("position", "sinusoidal", POSITIONS, "Random model: position encoding.")
    choice("layer_norm", "none", NORM_PLACEMENTS, "Random model: layer normalisation.")
    other = "" if scale == SCALE else f"; {SCALE} where another command is not told"
    define_number(
        values,
        "scale",
        scale,
        f"Random model: deviation of its weights, in units of 1 / sqrt(fan-in){other}.",
        least=0.0,
    )


def define_weighting(values: flags.FlagValues, random: str = "softmax") -> None:
    """Adds `--weighting` and `--temperature`, one of each.

    `random` is the default weighting of a random model; a hard one leaves soft ones out.
    """
    hard = WEIGHTINGS[random].hard
    flags.DEFINE_enum(
        "weighting",
        None,
        [name for name, one in WEIGHTINGS.items() if one.hard or not hard],
        f"Weighting of all layers; by default the model's own, {random} if random.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "temperature",
        None,
        "Temperature of all layers: T, inverse_log:A (A / ln n) or "
        "power:A:P[:position] (A n^P); by default the model's own, 1 if random.",
        flag_values=values,
    )
    validate_grammar(values, "temperature")


def define_weightings(values: flags.FlagValues) -> None:
    """Adds `--weighting` and `--temperature`, several of each."""
    flags.DEFINE_list(
        "weighting",
        None,
        f"Weightings to compare: some of {', '.join(WEIGHTINGS)}.",
        flag_values=values,
    )
    validate_choices(values, "weighting", tuple(WEIGHTINGS))
    flags.DEFINE_list(
        "temperature",
        None,
        "Temperatures to compare: each T, inverse_log:A (A / ln n) or "
        "power:A:P[:position] (A n^P).",
        flag_values=values,
    )
    validate_grammar(values, "temperature")


def define_inputs(values: flags.FlagValues, default_count: int | None) -> None:
    """Adds `--tokens`, `--text`, `--language`; with a default, `--num_inputs`."""
    flags.DEFINE_string(
        "tokens",
        None,
        "File of tokens: one input of integers separated by whitespace, or a NumPy "
        "file of one (n) or several (K, n) inputs.",
        flag_values=values,
    )
    flags.DEFINE_string(
        "text",
        None,
        "Text file, read through the model's vocabulary (bytes where it has none).",
        flag_values=values,
    )
    flags.DEFINE_enum(
        "language",
        "parity",
        (*LANGUAGES, RANDOM),
        "Language that inputs are sampled from where none is given; of a checkpoint's "
        "symbols random unless another is named.",
        flag_values=values,
    )
    if default_count is None:
        return
    define_count(values, "num_inputs", default_count, "Number of sampled inputs.")


def define_lengths(
    values: flags.FlagValues,
    default: str | None,
    text: str = "Lengths n, in tokens: an increasing list, or start:stop:count "
    "(log-spaced, both ends in).",
) -> None:
    """Adds `--lengths`."""
    flags.DEFINE(
        LengthsParser(),
        "lengths",
        default,
        text,
        flag_values=values,
        serializer=LengthsSerializer(),
    )


def define_query(values: flags.FlagValues) -> None:
    """Adds `--query`."""
    define_count(
        values,
        "query",
        None,
        "Position whose output is looked at, from 0; negative ones count from the end. By "
        "default the row of a classifier's head, else the last.",
        least=-MAX_COUNT,
    )


def define_read(values: flags.FlagValues) -> None:
    """Adds the flags on the watched output: `--query` and `--target`."""
    define_query(values)
    flags.DEFINE_enum(
        "target",
        "activation",
        ("activation", "logits"),
        "The output: final activations, or the logits of the read-out.",
        flag_values=values,
    )


def define_method(values: flags.FlagValues) -> None:
    """Adds the flags on the computation: `--method`, `--ties`."""
    flags.DEFINE_enum(
        "method",
        "auto",
        METHOD_NAMES,
        "How the influence is computed; auto picks the cheapest exact method, screened "
        "certifies the maximum and encloses the rest.",
        flag_values=values,
    )
    define_ties(values)


def define_stopping(values: flags.FlagValues) -> None:
    """Adds the flags that stop a screen: `--rtol`, `--budget`."""
    define_number(
        values,
        "rtol",
        0.0,
        "Of --method=screened: stop when the maximum is enclosed this closely, "
        "upper / lower - 1.",
        least=0.0,
    )
    define_count(
        values,
        "budget",
        32,
        "Of --method=screened: the most exact evaluations; 0 is as many as it takes.",
        0,
    )


def define_ties(values: flags.FlagValues) -> None:
    """Adds `--ties`."""
    flags.DEFINE_enum(
        "ties",
        "error",
        ("error", "warn"),
        "Hard attention: what an ambiguous tie is.",
        flag_values=values,
    )

"""Groups of options that commands share, each spelled once.

A command's class of options inherits from its groups. A weighting turns the scores of
attention into weights: softmax, or hard, which puts all weight on the best-scored keys.
The watched row is the position whose output is read. An influence is the change of that
output when one input symbol is replaced by a substitute. A store is the SQLite file in
--out that keeps results, a construction a model whose weights are written down, a radius a
bound on rounding.
"""

import os
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from bounds import influence
from bounds.cli.shared import options
from bounds.cli.shared.options import Group, expect_name, option
from bounds.influence.choice import METHOD_NAMES
from bounds.influence.method import Rounding
from bounds.influence.targets.table import GRAMMAR, check_grammar
from bounds.numbers.notation import parse_bytes, parse_lengths, parse_temperature
from bounds.rounding.precision import PRECISIONS
from bounds.store.output import FORMATS
from jax_models.arguments import MAX_COUNT
from jax_models.constructions import PRESETS, is_hard_preset, preset_parameters
from jax_models.errors import InputError
from jax_models.format.file import read_weightings
from jax_models.languages import LANGUAGES
from jax_models.model.layer import NORM_PLACEMENTS
from jax_models.model.mask import MASKS
from jax_models.model.scores import SCORES
from jax_models.weighting import HARD_WEIGHTINGS, WEIGHTINGS

DTYPES = ("float64", "float32")
POSITIONS = ("sinusoidal", "table", "none")
RANDOM = "random"
RECORDS = ("fasta", "smiles")  # options of files of several texts
INPUTS = ("tokens", "text", *RECORDS, "sequence")  # options that give inputs
# Options of which one is given at most.
ONE_OF = (
    INPUTS,
    *(("model", "preset"), ("formula", "program"), ("symbols", "candidates")),
)
# Of options of soft attention.
SOFT: dict[str, Any] = {
    "used_if": lambda one: has_attention(one, False),
    "otherwise": "is of soft attention, and all attention is hard; leave it out",
}
# Of options of inputs that are drawn.
SAMPLES: dict[str, Any] = {
    "used_if": lambda one: one.input_flag is None,
    "otherwise": "samples inputs, but --{0.input_flag} gives some; leave it out",
}
# Of options that change no result.
RUNNING: dict[str, Any] = {"key": False, "export": False}


def has_attention(options: Any, hard: bool) -> bool:
    """True if an options' model has hard attention, or soft attention if not `hard`."""
    if named := options.weighting:
        names = (named,) if isinstance(named, str) else named
        return any(WEIGHTINGS[name].hard is hard for name in names)
    file, preset = (getattr(options, name, None) for name in ("model", "preset"))
    if file is None and preset in PRESETS:
        return is_hard_preset(preset) is hard
    if file is None:
        return not hard or getattr(options, "is_main_job", False)
    if os.path.isdir(file):
        return not hard  # all families of checkpoints are soft
    names = read_weightings(file)
    return names is None or any(WEIGHTINGS[name].hard is hard for name in names)


class Output(Group):
    """Options of every command: folder of results, overwriting and seed."""

    out: str = option(
        "results/{command}",
        "Folder that the results are written to; made where there is none.",
        check=expect_name("the name of a folder"),
        **RUNNING,
    )
    overwrite: bool = option(
        False,
        "Write over the files that another configuration left in --out.",
        **RUNNING,
    )
    seed: int = option(
        0,
        "Seed of the random weights and inputs.",
        least=0,
        used_if=lambda one: one.is_random,
        otherwise="is of random weights and inputs, and none are drawn; leave it out",
    )

    # Whether weights, inputs or steps are drawn, given the options.
    DRAWS: ClassVar[Callable[[Any], bool]] = lambda _: True

    @property
    def is_random(self) -> bool:
        """True if the command draws weights, inputs or steps of a search at random."""
        return type(self).DRAWS(self)

    def refuse_unused(self) -> None:
        """Raises `InputError` also for two given options that exclude each other."""
        for some in ONE_OF:
            first, second, *_ = *filter(self.given.__contains__, some), None, None
            if second is not None:
                raise InputError(f"give --{first} or --{second}, not both")
        super().refuse_unused()


class Stored(Output):
    """Options of a command that keeps finished results in a store in --out."""

    fresh: bool = option(
        False,
        "Compute everything again, ignoring what the store in --out holds.",
        **RUNNING,
    )


class Figure(Group):
    """Formats of a command's figure."""

    figure_format: tuple[str, ...] = option(
        "png",
        "Formats of the figure: some of {words}.",
        FORMATS,
        **RUNNING,
    )


class Platform(Group):
    """Device of the computation, and the folder of compiled programs."""

    DOUBLE: ClassVar[bool] = True  # the command computes in double precision

    platform: str | None = option(
        None,
        "What is computed on (gpu and cuda are the same); by default what JAX finds, an "
        "accelerator before the CPU.",
        *("cpu", "gpu", "cuda", "tpu"),
        export=False,
    )
    compilation_cache: str | None = option(
        None,
        "Folder in which compiled programs are kept for later runs, at most 1 GiB, or "
        "off; by default attention-bounds in the user's cache folder, or what JAX's own "
        "settings say.",
        check=expect_name("a folder, or off"),
        **RUNNING,
    )


class Computed(Platform):
    """Device of the computation, and float type of the model and its arithmetic."""

    dtype: str = option(
        "float64", "Float type of the model and of the arithmetic.", DTYPES
    )


class Shape(Group):
    """Shape of a random model."""

    num_layers: int = option(1, "Random model: number of layers.", least=1)
    num_heads: int = option(2, "Random model: attention heads per layer.", least=1)
    d_model: int = option(16, "Random model: width of the activations.", least=1)
    d_ff: int = option(64, "Random model: neurons of each feed-forward layer.", least=1)
    mask: str = option("future", "Random model: mask; future is causal.", MASKS)
    score: str = option(
        "scaled_dot_product",
        "Random model: attention score.",
        SCORES,
    )
    position: str = option("sinusoidal", "Random model: position encoding.", POSITIONS)
    layer_norm: str = option(
        "none",
        "Random model: layer normalisation.",
        NORM_PLACEMENTS,
    )
    scale: float = option(
        1.0,
        "Random model: deviation of its weights, in units of 1 / sqrt(fan-in).",
        least=0.0,
    )


class Head(Group):
    """Read-out (map from last activations to logits) that is taken from a checkpoint."""

    head: str | None = option(
        None,
        "Checkpoint: what logits are read with (docs/checkpoints.md), or none; by default "
        "what its architecture has.",
        # What is no file is refused as a folder that is missing.
        used_if=lambda one: (
            not isinstance(one, Model)
            or not (one.model is None or os.path.isfile(one.model))
        ),
        otherwise="is of a checkpoint, and --model names no folder; leave it out",
    )


class Model(Shape, Head, Computed, Output):
    """A model: a file, a folder, a construction or random weights."""

    model: str | None = option(
        None,
        "Model file (safetensors), or a checkpoint's folder (docs/checkpoints.md).",
        check=expect_name("the name of a file or a folder"),
        file=True,
    )
    preset: str | None = option(
        None, f"Instead of a file; by default {RANDOM}.", (RANDOM, *PRESETS)
    )
    c: float | None = option(
        None,
        "Construction: its sharpness c, where it has one.",
        used_if=lambda one: one.preset not in (None, RANDOM),
        otherwise="is the sharpness of a construction; name its --preset",
    )
    vocab_size: int | None = option(
        None, "Random model: symbols; by default those of the inputs.", least=1
    )

    @property
    def is_drawn(self) -> bool:
        """True if the model has random weights."""
        return self.model is None and self.preset in (None, RANDOM)

    def refuse_unused(self) -> None:
        """Raises `InputError` also for a random model's shape where none is random."""
        super().refuse_unused()
        if self.is_drawn:
            return
        # Some constructions have layers and heads to choose.
        taken = preset_parameters(self.preset) if self.preset else ()
        source = f"--preset {self.preset}" if self.preset else f"--model {self.model}"
        for name in SHAPE:
            if name in self.given and name not in taken:
                raise InputError(
                    f"--{name} describes a random model (--preset={RANDOM}), which "
                    f"{source} is not"
                )


# Options that describe a random model only.
SHAPE = (*options.fields_of(Shape), "vocab_size")


class Weighted(Group):
    """One weighting and one temperature of attention for all layers."""

    weighting: str | None = option(
        None,
        "Weighting of all layers; by default the model's own, softmax if random.",
        WEIGHTINGS,
    )
    temperature: str | None = option(
        None,
        "Temperature of all layers: T, inverse_log:A (A / ln n) or power:A:P[:position] "
        "(A n^P); by default the model's own, 1 if random.",
        check=parse_temperature,
        **SOFT,
    )


class HardWeighting(Group):
    """One hard weighting of attention for all layers."""

    weighting: str | None = option(
        None,
        "Weighting of all layers; by default the model's own.",
        HARD_WEIGHTINGS,
    )


class Inputs(Model):
    """Inputs: strings sampled from a language, or tokens or a text in a file."""

    tokens: str | None = option(
        None,
        "File of tokens: one input of integers separated by whitespace, or a NumPy file "
        "of one (n) or several (K, n) inputs.",
        file=True,
    )
    text: str | None = option(
        None,
        "Text file, read through the model's vocabulary (bytes where it has none).",
        file=True,
    )
    language: str | None = option(
        "parity",
        "Language that inputs are sampled from where none is given; of a checkpoint's "
        "symbols random unless another is named.",
        *(LANGUAGES, RANDOM),
        **SAMPLES,
    )

    DRAWS = lambda one: one.is_drawn or one.input_flag is None

    @property
    def input_flag(self) -> str | None:
        """Name of the option that gives the inputs; None if they are drawn."""
        given = (x for x in INPUTS if getattr(self, x, None) is not None)
        return next(given, None)


class Sampled(Inputs):
    """Inputs, and their number if they are sampled."""

    num_inputs: int = option(8, "Number of sampled inputs.", least=1, **SAMPLES)


class Texts(Group):
    """Inputs that are texts, and the tokenizer that reads them."""

    fasta: str | None = option(
        None,
        "FASTA file: each record is one input; lower case that the vocabulary lacks is "
        "read as upper case.",
        file=True,
    )
    smiles: str | None = option(
        None, "File of molecules as SMILES, one a line, its name behind it.", file=True
    )
    sequence: str | None = option(None, "The input itself, as in EVQLVESGGG.")
    tokenizer: str | None = option(
        None,
        "Folder with tokenizer.json or vocab.txt, or one such file, that reads texts and "
        "names symbols; special symbols are neither replaced nor substitutes. By default "
        "that of the --model folder, where a text is given.",
        file=True,
    )


class Lengths(Group):
    """Lengths of inputs."""

    lengths: tuple[int, ...] = option(
        "16:4096:9",
        "Lengths n, in tokens: an increasing list, or start:stop:count (log-spaced, both "
        "ends in).",
        parser=parse_lengths,
    )


class Query(Group):
    """Position of the watched row."""

    query: int | None = option(
        None,
        "Position whose output is looked at, from 0; negative ones count from the end. By "
        "default the row of a classifier's head, else the last.",
        least=-MAX_COUNT,
    )


class Read(Query):
    """Position of the watched row, and the output that is read there."""

    target: Literal["activation", "logits"] = option(
        "activation",
        "The output: final activations, or the logits of the read-out.",
        *("activation", "logits"),
    )


class Memory(Group):
    """Memory for the blocks of work that a device computes at a time."""

    memory_limit: str | None = option(
        None,
        "Memory for the blocks that are under way on a device, with what they share, as "
        "in 512MiB or 8GiB: less makes smaller blocks. By default half of what the device "
        "has.",
        check=parse_bytes,
    )


class Ties(Group):
    """Treatment of ties of hard attention that rounding may decide."""

    ties: Literal["error", "warn"] = option(
        "error",
        "Hard attention: what an ambiguous tie is.",
        *("error", "warn"),
        used_if=lambda one: has_attention(one, True),
        otherwise="is of hard attention, which the model does not have; leave it out",
    )


class Method(Ties):
    """Method of computing influences."""

    method: str = option(
        "auto",
        "How the influence is computed; auto picks the cheapest exact method, screened "
        "certifies the maximum and encloses the rest.",
        METHOD_NAMES,
    )


class Incremental(Group):
    """Half precision of the incremental method, which propagates changes by layers."""

    precision: str | None = option(
        influence.Incremental.precision,
        "Half precision of the products of changes, by --method=incremental: answers are "
        "estimated, and the error of a sample in float64 stands beside them. By default "
        "all is of --dtype.",
        PRECISIONS,
        used_if=lambda one: (
            one.method in ("auto", "incremental") and not getattr(one, "propose", None)
        ),
        otherwise="is of --method=incremental, without --propose; leave it out",
    )


class OneInput(Weighted, Inputs, Texts, Memory, Stored):
    """One input, its substitutes, the watched output, and results with rounding radii."""

    target: str = option(
        "activation",
        f"What is watched of the output at the query: {GRAMMAR}; "
        "symbols S, T by name (with a tokenizer) or number. A sum is over rows from ROW "
        "(0) on, one a symbol; own and next are the input's symbols, at each row or "
        "behind it, special ones left out.",
        check=check_grammar,
    )
    symbols: tuple[str, ...] | None = option(
        None,
        "Symbols that are put in at every position, by name (with a tokenizer) or "
        "number, separated by commas; by default all that the model substitutes.",
        check=expect_name("symbols, separated by commas"),
    )
    candidates: str | None = option(
        None,
        "File of the symbols that are put in at each position: a line for each, symbols "
        "by name or number between spaces; or a NumPy file of integers (n, K), rows "
        "filled up with -1.",
        file=True,
    )
    rounding: Literal["auto", "all", "top", "none"] = option(
        "auto",
        "Which results have a radius of rounding, by four more runs with moved inputs: all, "
        "top, a block of the largest (the others are estimated), or none; auto is all where "
        "that takes about a second of one core, and top beyond.",
        Rounding,
    )
    dry_run: bool = option(
        False,
        "Check everything, say the method, the parts, the blocks and what they take, and "
        "stop: nothing is run or written.",
        **RUNNING,
    )
    length: int | None = option(
        None,
        "Tokens n: of a sampled input (default: 64), or how many of a file's (default: "
        "all).",
        least=1,
    )
    input: int = option(
        0,
        "Which input, from 0: row of a NumPy file, record of a FASTA file, line of a "
        "SMILES file, or number of the sample.",
        least=0,
        most=MAX_COUNT - 1,
    )
    num_devices: int | None = option(
        None,
        "Devices of each process that positions are shared out over; a CPU is divided "
        "into as many. By default one, with several processes all.",
        least=1,
        most=256,  # more are a mistake: a CPU would be divided into as many
        **RUNNING,
    )
    coordinator: str | None = option(
        None,
        "Several processes: address host:port of process 0, the same for all.",
        **RUNNING,
    )
    num_processes: int | None = option(
        None, "Several processes: how many.", least=1, **RUNNING
    )
    process_id: int | None = option(
        None,
        "Several processes: which one this is, from 0. Process 0 writes the results.",
        least=0,
        **RUNNING,
    )

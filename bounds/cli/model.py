"""Write a model file: random weights, a construction, or another file re-weighted.

The file is `model.safetensors` in --out; `model.json` beside it holds its SHA-256 and
how it was made.
"""

from absl import flags

from bounds.cli.shared import flags as shared
from bounds.cli.shared.model_source import weighted_model
from bounds.cli.shared.platforms import define_platform, prepare_jax
from bounds.cli.shared.record import Output
from bounds.cli.shared.values import define_count
from jax_models.model.transformer import encode_positions

# Symbols of a random model, and rows of its position table, where nothing is said.
VOCAB_SIZE = 2
TABLE_LENGTH = 512


def define_flags() -> flags.FlagValues:
    """Returns the flags of the command."""
    values = flags.FlagValues()
    shared.define_model(values)
    shared.define_weighting(values)
    define_count(
        values,
        "max_length",
        TABLE_LENGTH,
        "Random model with --position=table: number of positions.",
    )
    shared.define_dtype(values)
    define_platform(values)
    shared.define_output(values, "model")
    return values


def run(options: flags.FlagValues) -> None:
    """Build the model and write it."""
    prepare_jax(options)
    model = weighted_model(
        options, vocab_size=VOCAB_SIZE, max_length=options.max_length
    )
    encode_positions(model, 1)  # refuses a formula that does not fit the width
    output = Output.of("model", options)
    path = output.path("model.safetensors")
    with output.exports() as staged:
        record = staged.write_model(model, {})
    print(
        f"{path}: L = {len(model.layers)}, d = {model.width}, V = {model.vocab_size}, "
        f"SHA-256 {record['model_sha256']}"
    )

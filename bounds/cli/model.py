"""Write a preset or random model as a file.

The file is `model.safetensors` in --out; `model.json` beside it holds its SHA-256 and
how it was made.

    --num_layers=2 --weighting=softmax --out=results/two
    --preset=parity --c=1 --out=results/parity
"""

from bounds.cli.shared.groups import Model, Weighted
from bounds.cli.shared.options import again, option
from bounds.cli.shared.runner import Work, model_exports
from bounds.cli.shared.subject import weighted_model
from jax_models.model.transformer import encode_positions


class ModelOptions(Model, Weighted):
    """Options of the command."""

    DRAWS = lambda one: one.is_drawn

    # A file keeps it for another weighting.
    temperature: str | None = again(Weighted, "temperature", None, used_if=None)
    max_length: int = option(
        512,
        "Random model with --position=table: number of positions.",
        least=1,
        used_if=lambda one: one.is_drawn and one.position == "table",
        otherwise="is the size of a random model's table of positions; give "
        "--position=table too, or leave it out",
    )


def plan(options: ModelOptions) -> Work:
    """Work that writes the model's file."""
    longest = options.max_length
    model = weighted_model(options, max_length=longest)
    encode_positions(model, 1)  # refuses a formula that does not fit the width
    size = f"L = {len(model.layers)}, d = {model.width}, V = {model.vocab_size}"
    exports = model_exports(model, {}, lambda digest: f"{size}, SHA-256 {digest}")
    return Work(lambda _: exports)

"""A preset or random model, or another file re-weighted, as a file."""

from bounds.cli.options.model import ModelOptions
from bounds.cli.shared.model_source import weighted_model
from bounds.cli.shared.platforms import prepare_jax
from bounds.cli.shared.runner import Work, model_exports
from jax_models.model.transformer import encode_positions


def plan(options: ModelOptions) -> Work:
    """The model's file."""
    prepare_jax(options)
    longest = options.max_length
    model = weighted_model(options, max_length=longest)
    encode_positions(model, 1)  # refuses a formula that does not fit the width
    size = f"L = {len(model.layers)}, d = {model.width}, V = {model.vocab_size}"
    exports = model_exports(model, {}, lambda digest: f"{size}, SHA-256 {digest}")
    return Work(lambda _: exports)

"""Reason why rows of a model depend on how many rows follow that no mask shows them."""

from collections.abc import Iterator

from jax_models import Transformer
from jax_models.model.rows import Norm
from jax_models.model.transformer import shared_symbols


def unsupported_padding(model: Transformer) -> str | None:
    """Reason why rows of a model depend on rows that no mask shows them, or None."""
    if shared_symbols(model):
        return "some symbols move all rows"
    if model.position is not None and model.position.depends_on_length:
        return "its positions depend on the length"
    for layer in model.layers:
        schedule = layer.attention.temperature
        if schedule is not None and schedule.depends_on_length:
            return "a temperature depends on the length"
    # A row of the padding that vanishes is not a number, and enters sums with weight 0.
    if any(norm.epsilon == 0 for norm in _norms(model) if norm is not None):
        return "a norm divides by rows that may vanish"
    return None


def _norms(model: Transformer) -> Iterator[Norm | None]:
    for layer in model.layers:
        yield from (layer.norm1, layer.norm2)
        yield from (layer.attention.query_norm, layer.attention.key_norm)
    yield from (model.final_norm, model.entry and model.entry.norm)

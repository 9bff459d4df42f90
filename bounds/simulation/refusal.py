"""Which models the certificate speaks of; every reason against one is listed."""

from jax_models import InputError, Transformer
from jax_models.model_check import check_model


def check_simulable(model: Transformer) -> Transformer:
    """Returns a model whose simulation is proved; refuse others with all reasons.

    Proved are residual layers of hard attention with dot-product scores (scaled or not),
    any mask, any number of heads, output matrices, biases, ReLU or GELU.

    Raises:
        InputError: A layer is soft, normalises, concatenates its heads or has additive
            scores; or there is no layer.
    """
    model = check_model(model)
    reasons = []
    if not model.layers:
        reasons.append("the model has no layers")
    if model.final_norm is not None:
        reasons.append("final_norm is a LayerNorm, whose error gain has no bound here")
    for k, layer in enumerate(model.layers):
        attention = layer.attention
        if not attention.weighting.hard:
            reasons.append(
                f"layers.{k} has {attention.weighting.name} attention, so there is no "
                "hard attention to simulate (--weighting=average_hard makes it hard)"
            )
        if layer.layer_norm != "none":
            reasons.append(f"layers.{k} has a LayerNorm, whose error gain has no bound")
        if layer.combine != "residual":
            reasons.append(f"layers.{k} concatenates its heads")
        if not attention.scoring.bilinear:
            reasons.append(f"layers.{k} has {attention.scoring.word} scores")
    if reasons:
        raise InputError(
            "this model cannot be simulated: "
            + "; ".join(reasons)
            + "; expected residual layers of hard attention with dot-product scores and "
            "without layer norm"
        )
    return model

"""One model under several weightings and temperatures."""

from collections.abc import Sequence

import jax_models as jm
from bounds.curves.measurement import weighting_label
from bounds.figures.primitives import MAX_SERIES
from bounds.numbers.notation import parse_temperature
from jax_models.format.temperature import decode_temperature
from jax_models.model.reweight import with_temperature, with_weighting
from jax_models.weighting import WEIGHTINGS

Variant = tuple[str | None, str | None]  # weighting and temperature; None: the model's

MAIN_JOB: tuple[Variant, ...] = (
    ("leftmost_hard", None),
    ("average_hard", None),
    ("softmax", None),
    ("softmax", "inverse_log:1"),
)


def reweighted(
    model: jm.Transformer, weighting: str | None, temperature: str | None
) -> jm.Transformer:
    """The model under a weighting and a temperature; None keeps the model's own."""
    if weighting is not None:
        model = with_weighting(model, weighting)
    if temperature is not None:
        entry = parse_temperature(temperature)
        schedule = None
        for layer in model.layers:
            # A layer's mask decides whether a temperature by position has a meaning.
            schedule = decode_temperature("--temperature", entry, layer.attention.mask)
        model = with_temperature(model, schedule)
    return model


def combine(
    model: jm.Transformer,
    weightings: Sequence[str | None],
    temperatures: Sequence[str | None],
) -> list[Variant]:
    """Pairs of weighting and temperature; hard weightings take the first temperature."""
    variants = []
    for weighting in weightings:
        is_hard = model.is_hard if weighting is None else WEIGHTINGS[weighting].hard
        some = temperatures[:1] if is_hard else temperatures
        variants += [(weighting, temperature) for temperature in some]
    return variants


def reweighted_models(
    model: jm.Transformer, variants: Sequence[Variant]
) -> list[jm.Transformer]:
    """Variants of a model, without repeated labels."""
    models = [reweighted(model, *variant) for variant in variants]
    if len(models) > MAX_SERIES:
        raise jm.InputError(
            f"{len(models)} combinations of --weighting and --temperature; a figure "
            f"tells at most {MAX_SERIES} lines apart"
        )
    return list({weighting_label(variant): variant for variant in models}.values())

"""Small models for restrictions: integer weights with many ties, and real weights."""

import jax
import jax.numpy as jnp

import jax_models as jm

HARD = ("leftmost_hard", "rightmost_hard", "average_hard")


def integer_model(
    seed, *, num_layers=2, num_heads=2, weighting="leftmost_hard", **more
):
    """A model with small integers for weights: all its float64 arithmetic is exact."""
    model = real_model(
        seed, num_layers=num_layers, num_heads=num_heads, weighting=weighting, **more
    )
    return jax.tree.map(lambda leaf: jnp.round(1.2 * leaf), model)


def real_model(seed, *, num_layers=2, num_heads=2, weighting="leftmost_hard", **more):
    options = {"score": "dot_product", "position": "table", "max_length": 12, **more}
    return jm.random_transformer(
        jax.random.key(seed),
        **{"d_model": 2 * num_heads, "d_ff": 5, "vocab_size": 3, **options},
        num_layers=num_layers,
        num_heads=num_heads,
        weighting=weighting,
        dtype="float64",
    )

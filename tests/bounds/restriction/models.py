"""Small models for restrictions: integer weights with many ties, and real weights."""

from tests.bounds.restriction.drawn_models import random_model

HARD = ("leftmost_hard", "rightmost_hard", "average_hard")


def integer_model(seed, **more):
    """A model with small integers for weights: all its float64 arithmetic is exact."""
    return real_model(seed, integer=True, spread=1.2, **more)


def real_model(seed, *, integer=False, num_heads=2, **more):
    shape = {"d_model": 2 * num_heads, "d_ff": 5, "vocab_size": 3, "max_length": 12}
    shape |= more
    return random_model(seed, integer=integer, num_heads=num_heads, **shape)

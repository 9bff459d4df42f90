"""Models of the floors: random ones, and one that sees only the symbol it is read at."""

from fractions import Fraction

import jax.numpy as jnp
import numpy as np

import jax_models as jm
from jax_models.languages import DyckSource, ParitySource
from tests.architecture import small_model

P = Fraction(3, 8)  # which a float holds exactly
SOURCES = {"parity": ParitySource(float(P)), "dyck2": DyckSource(float(P))}


def random_model(source, seed=0, **options):
    """Returns a small random transformer for a source, an end token included."""
    options = {"mask": "future", "num_layers": 1, "dtype": "float64", **options}
    sizes = {"num_heads": 2, "d_model": 6, "d_ff": 8, "num_classes": source.num_classes}
    return small_model(seed, vocab_size=len(source.symbols) + 1, **sizes, **options)


def blind_model(source, length, reading):
    """Returns the best prediction from the token at the query alone: no layers.

    After the end token that is the best constant.
    """
    joint = source.joint(length)
    after = np.vstack([joint / joint.sum(axis=1, keepdims=True), joint.sum(axis=0)])
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(after), -700.0)
    return jm.Transformer(
        embedding=jnp.eye(len(logits)),
        position=None,
        layers=(),
        readout=jm.Readout(jnp.asarray(logits.T)),
    )

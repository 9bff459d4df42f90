"""Longest inputs that hard attention of a given depth can handle, as explicit numbers.

For PARITY and for DYCK (one or two bracket types, even lengths): a length up to which L
layers of H heads compute it, and one from which on none of that shape does, whatever its
weights, embeddings and activation functions. Ties go leftmost or rightmost; average-hard
attention computes PARITY with one head. `depth.json` has every route with its parameters.
A number beyond the range of floats is null, and stands beside as log10_impossible_from,
or as text where its logarithm is beyond them too.
What a language's routes came to is kept in --out, and found there by the same command.
"""

import dataclasses
from fractions import Fraction

from bounds.cli.shared.groups import Stored
from bounds.cli.shared.options import option
from jax_models.arguments import ascii_number

# The arithmetic of routes H and A has 60 digits.
_CLOSEST = Fraction(1, 10**30)


def _read_share(text: str) -> Fraction:
    try:
        share = Fraction(ascii_number(text))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 < share < 1:
        raise ValueError(f"{text} is not between 0 and 1")
    if min(share, 1 - share) < _CLOSEST:
        raise ValueError(f"{text} is within 1e-30 of 0 or of 1")
    return share


@dataclasses.dataclass(frozen=True, kw_only=True)
class DepthOptions(Stored):
    """Options of the command."""

    COMMAND = "depth"
    DRAWS = lambda _: False

    num_layers: int = option(
        2,
        "Layers L.",
        least=1,
        most="bounds.restriction.closed_form.routes:MOST_LAYERS",
    )
    num_heads: int = option(2, "Heads H in each layer.", least=1)
    free: str = option(
        "1/2",
        "Share C of the bits that the paper's proof and the alteration keep free, "
        "between 0 and 1: a decimal or a fraction.",
        check=_read_share,
    )
    free_bits: int | None = option(
        None,
        "Also give the threshold of a language that is hit wherever this many bits are "
        "free.",
        least=1,
    )
    read_out: bool = option(
        False, "Read the output at a further position without a symbol of its own."
    )

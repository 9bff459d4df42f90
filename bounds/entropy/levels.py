"""The levels of a source at one length: a row without a model."""

from typing import Any

from bounds.entropy.theorem import floor_theorem
from jax_models.languages import Source


def entropy_levels(source: Source, length: int) -> dict[str, Any]:
    """Returns optimum, chance and the floors that ε = 0 leaves, as a row.

    Args:
        source: A source with a theorem.
        length: n >= 1 symbols.

    Returns:
        `n`, `optimal`, `unigram` (the best constant prediction), `last_symbol` (the best
        from x_n alone), `floor_r1` and `floor_r2` at `eps` = 0, and `p0` where the
        theorem rests on it.

    Raises:
        InputError: There is no theorem or no such prefix.
    """
    theorem, levels = floor_theorem(source), source.levels(length)
    return {
        "n": length,
        "optimal": levels.optimal,
        "unigram": levels.unigram,
        "last_symbol": levels.last_symbol,
        "floor_r1": theorem.bound(length, "last", 0.0).value,
        "floor_r2": theorem.bound(length, "query", 0.0).value,
        "eps": 0.0,
        "p0": theorem.closing_above_ground(length),
        "eps_kind": "limit",
        "floor_kind": "certified",
    }

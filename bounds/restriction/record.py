"""Restrictions whose search is kept in a store of results, in parts.

A restriction is a partial input (some positions fixed, others free) under which the
output is constant; a part of its search is an attempt or a pass, named in the store.
"""

from collections.abc import Callable, Mapping
from typing import Any

from bounds.restriction.checker import check_certificate
from bounds.restriction.restriction import Restriction
from bounds.restriction.search import ClosedInput, Read, Work
from bounds.store.file import explained
from bounds.store.results import ResultStore
from bounds.store.sweep import Cell, obtain
from jax_models.errors import InputError
from jax_models.model.transformer import Transformer


def find_kept(
    store: ResultStore,
    config: Mapping[str, Any],  # key of the search's parts
    search: Callable[..., Restriction],
    model: Transformer,
    *,
    fresh: bool,
    **asked: Any,
) -> tuple[Restriction, float]:
    """Checked restriction, of `search` or of its stored parts, and seconds it took."""
    seconds = 0.0

    def remember(name: str, work: Work, read: Read) -> ClosedInput:
        nonlocal seconds
        cell = Cell({**config, "part": name}, name, work)
        stored = obtain(store, cell, fresh=fresh)
        seconds += store.seconds(cell.config)
        with explained(store.path):
            return read(stored)

    found = search(model, remember=remember, **asked)
    # What is written is what would be accepted: the checker is asked before.
    if not (checked := check_certificate(model, found.certificate)).accepted:
        raise InputError(
            f"the independent checker rejects this certificate: {checked.reasons[0]}"
        )
    return found, seconds

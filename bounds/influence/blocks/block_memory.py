"""Sizes of blocks of substitutions that suit the device, as far as memory allows.

Substitutions (a position and its new symbol) of one block are computed together. A
method gives the size that suits (a CPU's cache, the units of an accelerator) and the
bytes that a block of any size takes. The bytes are modelled, a few times what the
compiler accounts for; memory only ever makes blocks smaller. Radii of rounding are
found by `RUNS` reruns whose floats are off by a few roundings.
"""

import dataclasses
from collections.abc import Callable

from bounds.rounding.moved_inputs import RUNS
from jax_models import InputError, Transformer
from jax_models.run.device_memory import bytes_label, memory_at_hand, memory_budget


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """Sizes of a method's blocks and row tiles on each device, and the bytes they take."""

    substitutions: int
    rows: int | None = None  # of a tile; None where a method has no tiles of rows
    # Upper bound on the bytes of the blocks under way and of what they share.
    held: float = dataclasses.field(default=0.0, compare=False)


def fit_block(
    suited: int, bytes_taken: Callable[[int], float], limit: int | None
) -> int:
    """Block size `suited`, halved until its bytes fit the limit; raises if none fits."""
    # Without a limit one substitution goes ahead however much it takes.
    room, size = memory_budget() if limit is None else limit, suited
    while size > 1 and bytes_taken(size) > room:
        size = -(-size // 2)
    # The budget may have been planned for another device (`memory_planned`).
    if limit is None and size > 1 and bytes_taken(size) > (there := memory_at_hand()):
        raise InputError(
            f"a block takes about {bytes_label(bytes_taken(size))} of the "
            f"{bytes_label(room)} that were planned, but the device here has "
            f"{bytes_label(there)} for it; give --memory_limit to curve and influence, or "
            "run this where there is more"
        )
    if limit is not None and (least := bytes_taken(size)) > limit:
        raise InputError(
            f"the memory limit is {bytes_label(limit)}, but a block of one substitution "
            f"takes about {bytes_label(least)} with what all blocks share; raise the "
            "limit, or leave it out to take what the device has"
        )
    return size


def base_bytes(model: Transformer, length: int) -> float:
    """Upper bound on bytes of the unchanged input's pass and of its `RUNS` reruns."""
    elements = 0
    for layer in model.layers:
        attention, hidden = layer.attention, layer.feed_forward.hidden
        value = attention.value_width
        by_head = 2 * attention.key_width + 4 * value + 12
        elements += 5 * model.width + 2 * hidden + attention.num_heads * by_head + 8
    one = elements * length * model.dtype.itemsize
    return float((1 + RUNS) * one)  # one for each run that radii are made of

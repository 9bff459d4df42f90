"""How large a block of substitutions is: what suits the device, as far as memory allows.

A method says which size suits (a CPU's cache, the units of an accelerator) and what a block
of a size takes. That is a model, some times what the compiler accounts for; memory only ever
makes blocks smaller.
"""

import dataclasses
from collections.abc import Callable

from jax_models import InputError, Transformer
from jax_models.run.device_memory import bytes_label, memory_at_hand, memory_budget


@dataclasses.dataclass(frozen=True)
class BlockSizes:
    """The sizes that a method works in, on each device."""

    substitutions: int
    rows: int | None = None  # of a tile; None where a method has no tiles of rows
    # Bytes that blocks under way and what they share take, from above.
    held: float = dataclasses.field(default=0.0, compare=False)


def fit_block(
    suited: int, bytes_taken: Callable[[int], float], limit: int | None
) -> int:
    """Returns how many substitutions go into a block: `suited`, halved until they fit.

    Args:
        suited: the size where memory does not matter.
        bytes_taken: by a block of a size and all that is held beside it.
        limit: in bytes; None is the share of the device's memory that a computation may
            take, where one substitution goes ahead however much it takes.

    Raises:
        InputError: one substitution takes more than the limit that was given, or a block
            more than the device has, as planned elsewhere (`memory_planned`).
    """
    room, size = memory_budget() if limit is None else limit, suited
    while size > 1 and bytes_taken(size) > room:
        size = -(-size // 2)
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
    """Returns what the base pass of a change propagation keeps, from above."""
    elements = 0
    for layer in model.layers:
        attention, hidden = layer.attention, layer.feed_forward.hidden
        value = attention.value_width
        by_head = 2 * attention.key_width + 4 * value + 12
        elements += 5 * model.width + 2 * hidden + attention.num_heads * by_head + 8
    return float(elements * length * model.dtype.itemsize)

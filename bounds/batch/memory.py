"""Memory of a sweep: what blocks may take in all its cells, and what a process held."""

import sys

from jax_models.device_memory import SHARE, host_bytes

# The system counts the memory of a process in these units.
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024
# For the blocks of a cell, on machines that have twice that.
BLOCK_MEMORY = 2**32


def block_memory() -> int:
    """Returns the bytes that the blocks of a cell may take, where no flag says.

    Sizes of blocks move the last bits, so they are part of a cell's configuration, and
    are the same on machines with a different memory: 4 GiB, or on a small machine half
    of its memory, rounded down to a power of two.
    """
    share = max(1, host_bytes() // SHARE)
    return min(BLOCK_MEMORY, 1 << (share.bit_length() - 1))


def peak_bytes() -> int | None:
    """Returns the most memory that this process has held; None where it is not told.

    POSIX systems tell it.
    """
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT

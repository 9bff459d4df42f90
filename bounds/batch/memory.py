"""How much memory this process has held."""

import sys

# The system counts the memory of a process in these units.
PEAK_UNIT = 1 if sys.platform == "darwin" else 1024


def peak_bytes() -> int | None:
    """Return the most memory that this process has held; None where it is not told.

    POSIX systems tell it.
    """
    try:
        import resource
    except ImportError:
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * PEAK_UNIT

"""`--method` with the options of the method's class."""

from typing import Any

from bounds.influence import Incremental, Proposed, Screened
from bounds.influence.method import Way


def read_method(options: Any) -> Way | str:
    """Method with its options, or its name; what does not apply was refused (`used_if`)."""
    if (cheap := getattr(options, "propose", None)) is not None:
        return Proposed(cheap, options.method)
    if (half := getattr(options, "precision", None)) is not None:
        return Incremental(half)
    if options.method == "screened" and hasattr(options, "budget"):
        return Screened(options.rtol, options.budget or None)  # 0: as many as it takes
    return options.method

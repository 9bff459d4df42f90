"""The one error that a caller's mistake raises.

Everything that is wrong with an *input* (a file, a flag, a shape, a token, a tie) is
reported as `InputError`: a message that names the thing, what was found, what was
expected and what to do. The command line prints the message alone and exits with 1; a
different exception is a bug and keeps its traceback.
"""

import contextlib
from collections.abc import Iterator


class InputError(ValueError):
    """An input that cannot be used; the message says what, why and the remedy."""


@contextlib.contextmanager
def errors_of(thing: str | None) -> Iterator[None]:
    """Begins the message of an `InputError` with the name of a thing, unless it is None."""
    try:
        yield
    except InputError as error:
        if thing is None:
            raise
        raise InputError(f"{thing}: {error}") from error


class InputWarning(UserWarning):
    """An input that is not used as it stands; the message says what is used, in one line."""


class TieError(InputError):
    """A hard-attention row whose winner rounding could change.

    Scores are grouped in cells, numbered by integers; those of the best cell c are tied.
    Raised for a row that also sees a score in cell c - 1, so that a last-bit difference
    could decide the tie, or whose cells are no wider than the rounding of its scores.
    """

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
def errors_of(
    # its name begins the message; None leaves errors as they are
    thing: str | None,
    # of errors that become an `InputError`; by default those that are one
    *kinds: type[Exception],
) -> Iterator[None]:
    """Raises errors of given kinds as `InputError`, with `thing` before the message."""
    caught = kinds or (InputError,)
    try:
        yield
    except caught as error:
        if thing is None or (kinds and isinstance(error, InputError)):
            raise
        # The text of a missing key is the key alone.
        said = repr(error) if isinstance(error, LookupError | StopIteration) else error
        raise InputError(f"{thing}: {said}") from error


class InputWarning(UserWarning):
    """An input that is not used as it stands; the message says what is used, in one line."""


class TieError(InputError):
    """A hard-attention row whose winner rounding could change.

    Scores are grouped in cells, numbered by integers; those of the best cell c are tied.
    Raised for a row that also sees a score in cell c - 1, so that a last-bit difference
    could decide the tie, or whose cells are no wider than the rounding of its scores.
    """

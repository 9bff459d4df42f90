"""Ambiguous ties under `--ties=warn`: one line at the end instead of one per case."""

import contextlib
import sys
import warnings
from collections.abc import Iterator

from jax_models.run.evaluate import AmbiguousTieWarning


@contextlib.contextmanager
def quiet_ties() -> Iterator[None]:
    """Suppresses Python's own warnings of ambiguous ties; results carry the fact."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AmbiguousTieWarning)
        yield


def warn_of_ties(count: int) -> None:
    """Prints on standard error the number of results that hang on a tie, if any."""
    if count:
        print(
            f"warning: in {count} results rounding decided a hard-attention winner; "
            "they are marked as ambiguous",
            file=sys.stderr,
        )

"""State of a screen or a proposal, kept in a file from which a killed call resumes.

A screen bounds all influences in levels, each sharper than the last; a proposal
estimates them in a cheap precision. Both then compute those that may be the largest.
The file is a NumPy archive (npz), replaced as a whole.
"""

import dataclasses
import functools
import io
import json
import os
import time
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from bounds.influence.method import Run
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Level
from bounds.store.output import canonical_json, sha256
from bounds.version import __version__
from jax_models import InputError
from jax_models.arguments import INPUT_BYTES, read_file
from jax_models.atomic import write_atomically
from jax_models.model.pytree import in_bytes
from jax_models.run.mesh import first_says

FORMAT = "attention-bounds screen 5"
SECONDS_BETWEEN_SAVES = 5.0


@dataclasses.dataclass
class ScreenProgress:
    """Bounds, estimates and values of influences so far, and progress in a level."""

    lower: Float[np.ndarray, "substitutions"]  # of closed levels
    upper: Float[np.ndarray, "substitutions"]
    estimate: Float[np.ndarray, "substitutions"]  # NaN where not screened or proposed
    # bound on the error of a screen's estimates
    error: Float[np.ndarray, "substitutions"]
    # of the estimates; NaN where no run was made
    move: Float[np.ndarray, "substitutions"]
    value: Float[np.ndarray, "substitutions"]  # exact; NaN where not evaluated
    value_move: Float[np.ndarray, "substitutions"]  # of the exact values
    step: int = 0  # of the ladder
    # screened by the level; None before they are chosen
    chosen: Int[np.ndarray, "chosen"] | None = None
    done: int = 0  # chosen ones that are screened, or of all that are proposed
    spent: float = 0.0  # seconds on that level
    subtracted: bool = False  # whether some values are differences of outputs
    # the earlier ones
    levels: list[Level] = dataclasses.field(default_factory=list)

    @classmethod
    def nothing(cls, count: int) -> "ScreenProgress":
        """State before anything is screened or proposed."""
        # All arrays but the two ends, which begin at 0 and infinity.
        nothing = np.full((len(ARRAYS) - 2, count), np.nan)
        estimate, error, move, value, value_move = nothing
        ends = np.zeros(count), np.full(count, np.inf)
        return cls(*ends, estimate, error, move, value, value_move)


ARRAYS = ("lower", "upper", "estimate", "error", "move", "value", "value_move")
UNDER_WAY = ("step", "done", "spent", "subtracted")
# What the contents of an archive that was damaged or written by others may raise.
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError)


class Checkpoint:
    """A file with the state of a screen or a proposal for one request."""

    def __init__(
        self, path: str | os.PathLike[str], request: InfluenceRequest, *rules: Any
    ) -> None:
        """Digests request and `rules`; raises if the folder of `path` is missing."""
        self._path = Path(path)
        if not self._path.parent.is_dir():
            raise InputError(
                f"checkpoint = {str(path)!r}: there is no folder {self._path.parent}; "
                "create it, or name a file in another"
            )
        self._question, self._count = _digest(request, rules), len(request.pairs)
        self._saved = time.monotonic()

    def read(self) -> ScreenProgress | None:
        """State in the file, or None; raises if unreadable or of another request."""
        try:
            content = self._content()
            if content is None:
                return None
            # A pickle in a file that others wrote could run code.
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                same = (about["format"], about["question"]) == (FORMAT, self._question)
                # One of another version may hold other arrays.
                state = self._state(file, about) if same else None
        except (OSError, EOFError, zipfile.BadZipFile, *_MALFORMED) as error:
            raise InputError(
                f"{self._path} is no readable checkpoint ({error}); delete it, or name "
                "another file"
            ) from error
        if state is None:
            raise InputError(
                f"{self._path} is the checkpoint of another question: another model, "
                "input, query, set of substitutions, rounding, or version; name another "
                "file, or delete it"
            )
        return state

    def _state(self, file: Any, about: Any) -> ScreenProgress:
        """State from an archive and its parsed entry `about`; raises on wrong shapes."""
        known = {name: file[name] for name in ARRAYS}
        if any(x.shape != (self._count,) for x in known.values()):
            raise ValueError(f"its arrays are not of {self._count} substitutions")
        chosen = file["chosen"] if about["begun"] else None
        levels = [Level(**level) for level in about["levels"]]
        under_way = {name: about[name] for name in UNDER_WAY}
        return ScreenProgress(**known, **under_way, chosen=chosen, levels=levels)

    def _content(self) -> bytes | None:
        """Bytes of process 0's file, in every process; None where there is none."""
        told = b""
        if jax.process_index() == 0 and self._path.exists():
            # The prefix tells an empty file from none.
            told = b"file" + read_file("checkpoint", self._path, INPUT_BYTES)
        told = first_says(told)
        return told.removeprefix(b"file") if told else None

    def save(self, state: ScreenProgress, *, at_once: bool = False) -> None:
        """Writes a state in process 0, if the last write is some seconds ago or `at_once`."""
        if jax.process_index():
            return
        if not at_once and time.monotonic() - self._saved < SECONDS_BETWEEN_SAVES:
            return
        about = {
            "format": FORMAT,
            "question": self._question,
            "begun": state.chosen is not None,
            "levels": [dataclasses.asdict(level) for level in state.levels],
        }
        about |= {name: getattr(state, name) for name in UNDER_WAY}
        chosen = np.zeros(0, np.int64) if state.chosen is None else state.chosen
        content = io.BytesIO()
        np.savez(
            content,
            about=np.asarray(json.dumps(about)),
            chosen=chosen,
            **{name: getattr(state, name) for name in ARRAYS},
        )
        write_atomically(self._path, content.getvalue())
        self._saved = time.monotonic()


def open_progress(
    request: InfluenceRequest, run: Run, *rules: Any
) -> tuple[ScreenProgress, Callable[..., None]]:
    """State in the checkpoint of a run, or nothing, and a function that saves it."""
    nothing = ScreenProgress.nothing(len(request.pairs))
    if run.checkpoint is None:
        return nothing, lambda **options: None
    file = Checkpoint(run.checkpoint, request, *rules, __version__)
    state = file.read() or nothing
    return state, functools.partial(file.save, state)


def checkpoint_name(
    question: Mapping[str, Any],  # without the tolerance and the budget
    what: str = "screen",  # or "proposal"
) -> str:
    """Name of a checkpoint file: `what` and a hash of `question`."""
    return f"{what}-{sha256(canonical_json(question).encode())[:16]}.npz"


def _digest(request: InfluenceRequest, rules: tuple[Any, ...]) -> str:
    """Hash of `rules` and a request's model, input, query, substitutions, target."""
    # The tolerance and the budget of a screen are no part of it, so that a later call may go
    # further.
    asked = (request.model, request.tokens, request.position, request.symbol)
    if leaves := jax.tree.leaves(request.target_value):  # its text may not show them
        asked = (*asked, leaves)
    words = repr((request.query, request.target, rules)).encode()
    return sha256(words + in_bytes(asked))

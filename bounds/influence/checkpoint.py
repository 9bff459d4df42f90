"""State of a screen or a proposal, kept in a file from which a killed call resumes.

A substitution replaces one token; its influence is the norm of the output's change. A
screen bounds all influences in levels, each with finer bounds than the last; a proposal
estimates them in a cheap precision. Both then compute those that may be the largest.
The file is a NumPy archive (npz), replaced as a whole. A move is the largest distance
of a value from that of reruns whose floats are off by a few roundings. Rules are the
options that the state depends on.
"""

import dataclasses
import io
import json
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

FORMAT = "attention-bounds screen 6"
SECONDS_BETWEEN_SAVES = 5.0


@dataclasses.dataclass
class ScreenProgress:
    """Bounds, estimates and exact influences so far, and the state of the current level."""

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
        """State of `count` influences before any is bounded, estimated or computed."""
        # All arrays but the two ends, which begin at 0 and infinity.
        nothing: Any = np.full((len(ARRAYS) - 2, count), np.nan)
        return cls(np.zeros(count), np.full(count, np.inf), *nothing)


ARRAYS = ("lower", "upper", "estimate", "error", "move", "value", "value_move")
# What the contents of an archive that was damaged or written by others may raise.
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, IndexError)


def open_progress(
    request: InfluenceRequest, run: Run, *rules: Any
) -> tuple[ScreenProgress, Callable[..., None]]:
    """State in the checkpoint file of `run`, or a new one, and a function that saves it.

    Raises `InputError` if the file is unreadable, or of another request or rules. The
    function writes in process 0, if the last write is some seconds ago or with
    `at_once=True`.
    """
    count = len(request.pairs)
    if run.checkpoint is None:
        return ScreenProgress.nothing(count), lambda **options: None
    path = Path(run.checkpoint)
    if not path.parent.is_dir():
        raise InputError(
            f"checkpoint = {str(run.checkpoint)!r}: there is no folder {path.parent}; "
            "create it, or name a file in another"
        )
    # The tolerance and the budget of a screen are no part of it, so that a later call may
    # go further.
    asked: tuple[Any, ...] = request.model, request.tokens
    asked += request.position, request.symbol
    if leaves := jax.tree.leaves(request.target_value):  # its text may not show them
        asked += (leaves,)
    words = repr((request.query, request.target, (*rules, __version__))).encode()
    question = sha256(words + in_bytes(asked))
    state = _read(path, question, count)
    saved = time.monotonic()

    def save(*, at_once: bool = False) -> None:
        nonlocal saved
        recent = time.monotonic() - saved < SECONDS_BETWEEN_SAVES
        if jax.process_index() or (recent and not at_once):
            return
        arrays: dict[str, Any] = {}
        about = {"format": FORMAT, "question": question}
        for name, value in vars(state).items():
            (arrays if isinstance(value, np.ndarray) else about)[name] = value
        arrays["about"] = np.asarray(json.dumps(about, default=dataclasses.asdict))
        content = io.BytesIO()
        np.savez(content, **arrays)
        write_atomically(path, content.getvalue())
        saved = time.monotonic()

    return state, save


def _read(path: Path, question: str, count: int) -> ScreenProgress:
    """State in file `path`, a new one if none; raises if it is of another `question`."""
    try:
        content = b""
        if jax.process_index() == 0 and path.exists():
            # The prefix tells an empty file from none.
            content = b"file" + read_file("checkpoint", path, INPUT_BYTES)
        content = first_says(content)
        if not content:
            return ScreenProgress.nothing(count)
        # A pickle in a file that others wrote could run code.
        archive = io.BytesIO(content.removeprefix(b"file"))
        with np.load(archive, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            if (about.pop("format"), about.pop("question")) == (FORMAT, question):
                levels = [Level(**level) for level in about.pop("levels")]
                arrays = {name: file[name] for name in file if name != "about"}
                if any(arrays[name].shape != (count,) for name in ARRAYS):
                    raise ValueError(f"its arrays are not of {count} substitutions")
                return ScreenProgress(**{**about, **arrays, "levels": levels})
    except (OSError, EOFError, zipfile.BadZipFile, *_MALFORMED) as error:
        raise InputError(
            f"{path} is no readable checkpoint ({error}); delete it, or name another file"
        ) from error
    # One of another version may hold other arrays.
    raise InputError(
        f"{path} is the checkpoint of another question: another model, input, query, set of "
        "substitutions, rounding, or version; name another file, or delete it"
    )


def checkpoint_name(
    question: Mapping[str, Any],  # without the tolerance and the budget
    what: str = "screen",  # or "proposal"
) -> str:
    """Name of a checkpoint file: `what` and a hash of `question`."""
    return f"{what}-{sha256(canonical_json(question).encode())[:16]}.npz"

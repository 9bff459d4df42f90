"""Where a screen or a proposal stands, kept in a file, so that one that was killed goes on.

The file is a NumPy archive (npz), replaced as a whole. It names the question by a digest
of the model, the input and the substitutions, and what a level is; how far to go, the
tolerance and the budget, is not part of it, so that a later call may go further.
"""

import dataclasses
import io
import json
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from bounds.influence.problem import Problem
from bounds.influence.result import Level
from bounds.store.output import canonical_json, sha256
from jax_models import InputError
from jax_models.atomic import write_atomically
from jax_models.model.pytree import in_bytes
from jax_models.run.mesh import first_says

FORMAT = "attention-bounds screen 3"
SECONDS_BETWEEN_SAVES = 5.0


@dataclasses.dataclass(frozen=True)
class Standing:
    """What is known of P substitutions, and the level under way."""

    lower: np.ndarray  # [P]
    upper: np.ndarray  # [P]
    estimate: np.ndarray  # [P] NaN where not screened or proposed
    value: np.ndarray  # [P] exact values, NaN where not evaluated
    step: int = 0  # of the ladder
    chosen: np.ndarray | None = None  # what its level screens; None before it is chosen
    done: int = 0  # how many of them are screened, or of all are proposed
    spent: float = 0.0  # seconds on that level
    levels: Sequence[Level] = ()  # those before it

    @classmethod
    def nothing(cls, count: int) -> "Standing":
        """Returns what is known of so many substitutions ahead of everything."""
        estimate, value = np.full((2, count), np.nan)
        return cls(np.zeros(count), np.full(count, np.inf), estimate, value)


ARRAYS = ("lower", "upper", "estimate", "value", "chosen")


class Checkpoint:
    """A file that holds the standing of one question."""

    def __init__(self, path: str | Path, problem: Problem, *rules: Any) -> None:
        """Names the file and the question.

        Args:
            path: the file; its folder exists.
            problem: the question.
            rules: what else a standing depends on, such as the ladder.
        """
        self._path = Path(path)
        self._question = _digest(problem, rules)
        self._saved = time.monotonic()

    def read(self) -> Standing | None:
        """Returns the standing that the file holds; None where there is no file.

        Raises:
            InputError: if it is no checkpoint, or one of another question.
        """
        try:
            content = self._content()
            if content is None:
                return None
            with np.load(io.BytesIO(content), allow_pickle=False) as file:
                about = json.loads(str(file["about"]))
                # One of another version may hold other arrays.
                arrays = {name: file[name] for name in ARRAYS if name in file}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{self._path} is no readable checkpoint ({error}); delete "
                "it, or name another file"
            ) from error
        if (about.get("format"), about.get("question")) != (FORMAT, self._question):
            raise InputError(
                f"{self._path} is the checkpoint of another question: another model, "
                "input, query, set of substitutions, or version; name another file, or "
                "delete it"
            )
        chosen = arrays["chosen"] if about["begun"] else None
        return Standing(
            arrays["lower"],
            arrays["upper"],
            arrays["estimate"],
            arrays["value"],
            about["step"],
            chosen,
            about["done"],
            about["spent"],
            [Level(**level) for level in about["levels"]],
        )

    def _content(self) -> bytes | None:
        """The bytes of process 0's file, in every process; None where there is none."""
        told = b""
        if jax.process_index() == 0 and self._path.exists():
            told = b"file" + self._path.read_bytes()
        told = first_says(told)
        return told.removeprefix(b"file") if told else None

    def save(self, standing: Standing, *, at_once: bool = False) -> None:
        """Keeps a standing, if the last one is not from just now; process 0 alone does.

        Args:
            standing: what is kept.
            at_once: whether it is kept in any case.
        """
        if jax.process_index():
            return
        if not at_once and time.monotonic() - self._saved < SECONDS_BETWEEN_SAVES:
            return
        about = {
            "format": FORMAT,
            "question": self._question,
            "begun": standing.chosen is not None,
            "step": standing.step,
            "done": standing.done,
            "spent": standing.spent,
            "levels": [dataclasses.asdict(level) for level in standing.levels],
        }
        chosen = np.zeros(0, np.int64) if standing.chosen is None else standing.chosen
        content = io.BytesIO()
        np.savez(
            content,
            about=np.asarray(json.dumps(about)),
            lower=standing.lower,
            upper=standing.upper,
            estimate=standing.estimate,
            value=standing.value,
            chosen=chosen,
        )
        write_atomically(self._path, content.getvalue())
        self._saved = time.monotonic()


def checkpoint_name(question: Mapping[str, Any], what: str = "screen") -> str:
    """Returns the name of the file of a question, in a folder of many.

    Args:
        question: What the standing depends on, but how far it is to go.
        what: "screen" or "proposal".
    """
    return f"{what}-{sha256(canonical_json(question).encode())[:16]}.npz"


def _digest(problem: Problem, rules: tuple[Any, ...]) -> str:
    """A hash of everything that the enclosures depend on."""
    asked = (problem.model, problem.tokens, problem.position, problem.symbol)
    words = repr((problem.query, problem.target, rules)).encode()
    return sha256(words + in_bytes(asked))

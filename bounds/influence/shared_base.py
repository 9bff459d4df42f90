"""A base pass that several questions about one model and input share."""

from collections.abc import Callable
from typing import Any

import numpy as np


class SharedBase:
    """A base pass of questions about one model, input and watched row (or rows).

    Hand the same object to each of them (`compute_influence(shared=)`, as for a sweep in
    parts), and `incremental` forms the pass once. It holds the last one asked for, as long
    as the object lives: O(n d) numbers for each layer.
    """

    def __init__(self) -> None:
        """Holds nothing yet."""
        self._asked: tuple[Any, np.ndarray, Any] | None = None
        self.held: Any = None  # the pass that was asked for last
        self.largest_output = 0.0  # of those that differences were taken from
        self._moved: dict[int, tuple[Any, Any]] = {}

    def find(self, problem: Any, form: Callable[[], Any]) -> Any:
        """Returns what `form` returned for these model, tokens and rows, or forms it.

        Args:
            problem: the question.
            form: forms the base pass; the same function of the three in all calls.
        """
        watched = problem.watches_many, problem.rows.tolist(), problem.run
        asked = (problem.model, problem.tokens, watched)
        held = self._asked
        if (
            held is None
            or held[0] is not asked[0]
            or held[2] != asked[2]
            or not np.array_equal(held[1], asked[1])
        ):
            self.held = None  # not both at a time
            self._asked, self.held = asked, form()
        return self.held

    def moved_by(self, model: Any, run: int, form: Callable[[], Any]) -> Any:
        """Returns what `form` returned for this model and run, or forms it.

        Args:
            model: the model that is moved.
            run: which of the runs, signed where they go up and down.
            form: forms the moved model, and what holds its base pass.
        """
        held = self._moved.get(run)
        if held is None or held[0] is not model:
            held = self._moved[run] = model, form()
        return held[1]

"""Holder of a base pass, that of the unchanged input, which several requests share."""

from collections.abc import Callable
from typing import Any

import numpy as np


# The caller holds it: a hidden cache would keep O(n d) numbers alive.
class SharedBase:
    """Holder of one base pass for several requests on one model, input and rows.

    A base pass is the pass of the unchanged input. Give the same object to each
    question (`build_request(shared=)`), as for a sweep in parts, and `incremental`, a
    method, forms the pass once. The last pass asked for is held as long as the object
    lives: O(n d) numbers for each layer, n tokens of width d.
    """

    def __init__(self) -> None:
        """Starts without a held base pass."""
        self._asked: tuple[Any, np.ndarray, Any] | None = None
        self.held: Any = None  # the last pass asked for
        self.largest_output: Any = 0.0  # magnitude, of outputs that are subtracted
        self._derived: dict[Any, tuple[Any, Any]] = {}

    def find(self, request: Any, form: Callable[[], Any]) -> Any:
        """Held base pass of a request's model, tokens, watched rows and run, or a new one.

        Args:
            request: the question.
            form: forms the base pass; the same function of these four in all calls.
        """
        # The model is compared by identity below: arrays of a model do not change.
        watched = request.watches_many, request.rows.tolist(), request.run
        asked = (request.model, request.tokens, watched)
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

    def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """Result of `function`, which forms a base pass; a subclass may trace it instead."""
        return function(*given)

    def derive(self, model: Any, key: Any, form: Callable[[], Any]) -> Any:
        """Result of `form`, such as a perturbed or padded copy of `model`, formed once.

        Args:
            model: the model that it is derived from; for another it is formed anew.
            key: name of the result among those of `model`.
            form: forms the copy, perhaps with a base pass of its own.
        """
        held = self._derived.get(key)
        if held is None or held[0] is not model:
            held = self._derived[key] = model, form()
        return held[1]

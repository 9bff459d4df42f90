"""Keywords of version 0.1 that have another place since 0.2."""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def refuse_moved(function: str, given: Iterable[str], moved: Mapping[str, str]) -> None:
    """Raises a `TypeError` that names the new place of the first keyword that moved."""
    for name in given:
        if name in moved:
            raise TypeError(
                f"{function}() has no keyword {name!r} since 0.2: it is {moved[name]}"
            )


def refusing_moved(
    moved: Mapping[str, str],
) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorator of a function whose keywords in `moved` have another place."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def checked(*arguments: Any, **keywords: Any) -> T:
            refuse_moved(function.__name__, keywords, moved)
            return function(*arguments, **keywords)

        return checked

    return decorate

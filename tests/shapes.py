"""Shapes in signatures, checked at each call while tests run (`CHECK_SHAPES=1`)."""

import typing
from collections.abc import Callable, Iterator

from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook


def check_packages(*packages):
    """Checks what is imported from now on; as a context manager, within it."""
    return install_import_hook(packages, "tests.shapes.check")


def check(function: Callable) -> Callable:
    """Function whose arrays are checked; pyright checks its other types."""
    # Maps over a pytree make it of whatever they return, placeholders among them.
    if function.__name__ == "__init__":
        return function
    hints = function.__annotations__
    function.__annotations__ = {k: h for k, h in hints.items() if _is_checked(h)}
    return beartype(function)


def _is_checked(hint: object) -> bool:
    parts = list(_parts(hint))
    # beartype reads `Self` in classes that it decorates itself, and nowhere else.
    return typing.Self not in parts and any(
        isinstance(part, type) and issubclass(part, AbstractArray) for part in parts
    )


def _parts(hint: object) -> Iterator[object]:
    yield hint
    for part in typing.get_args(hint):
        yield from _parts(part)

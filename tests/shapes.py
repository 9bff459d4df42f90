"""Shapes in signatures, checked at each call while tests run (`CHECK_SHAPES=1`)."""

import typing
from collections.abc import Callable, Iterator
from typing import Any

import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray, install_import_hook

_jaxtyped = jaxtyping.jaxtyped


def check_packages(*packages):
    """Checks what is imported from now on; as a context manager, within it."""
    jaxtyping.jaxtyped = _decorate  # what the hook puts before every function and class
    return install_import_hook(packages, "tests.shapes.check")


def _decorate(*, typechecker: Callable) -> Callable:
    """Decorator of functions with arrays alone: every decorated call takes 0.1 ms."""

    def decorate(thing: Any) -> Any:
        # Maps over a pytree make classes of whatever they return, placeholders among them.
        is_function = not isinstance(thing, type) and thing.__name__ != "__init__"
        if is_function and any(map(_is_checked, thing.__annotations__.values())):
            return _jaxtyped(thing, typechecker=typechecker)
        return thing

    return decorate


def check(function: Callable) -> Callable:
    """Function whose arrays are checked; pyright checks its other types."""
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

"""Results that print in a line: numbers and words in full, arrays and the like by size."""

import dataclasses
from typing import Any

from jax_models.arguments import SHOWN


class BriefRepr:
    """Dataclass, decorated with `repr=False`, whose fields print in a few characters each."""

    def __repr__(self) -> str:
        """The fields of the dataclass, but those with `repr=False`."""
        fields: Any = dataclasses.fields(self)  # pyright: ignore[reportArgumentType]
        shown = [f"{x.name}={_brief(getattr(self, x.name))}" for x in fields if x.repr]
        return f"{type(self).__name__}({', '.join(shown)})"


def _brief(value: Any) -> str:
    """Text of a value, of a long one its type and size alone."""
    if getattr(value, "shape", ()):
        return f"{value.dtype}{list(value.shape)}"
    text = repr(value)
    if len(text) <= SHOWN and "\n" not in text:
        return text
    if isinstance(value, tuple | list | dict | frozenset):
        return f"<{len(value)} entries>"
    return f"{type(value).__name__}(...)"

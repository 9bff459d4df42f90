"""Where a model's tensors come from: each is taken by name, and what was not is known."""

import abc
from typing import Any, ClassVar

import numpy as np

from jax_models.arguments import not_finite_at, show
from jax_models.errors import InputError

# Float types by their names in a file, and what they become.
FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float32, "BF16": np.float32}
KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def kind_of(array: np.ndarray) -> str:
    """Returns an array's type by its name in a file."""
    return KINDS.get(str(array.dtype), str(array.dtype))


class Source(abc.ABC):
    """A configuration and tensors: a folder's, or arrays that are held."""

    config: dict[str, Any]
    left: set[str]  # names of tensors that were not taken
    called: str  # what messages call it
    # Ends of messages: what a shape was read from, of a tensor that is missing, and of
    # tensors that nothing was made of.
    shapes: ClassVar[str]
    missing: ClassVar[str]
    unknown: ClassVar[str]

    @abc.abstractmethod
    def __contains__(self, name: str) -> bool: ...

    @abc.abstractmethod
    def where(self, key: str) -> str:
        """The name of a configuration key in messages."""

    @abc.abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor that is there."""

    @abc.abstractmethod
    def kind(self, name: str) -> str:
        """Returns the type of a tensor that is there, by its name in a file."""

    @abc.abstractmethod
    def read(self, name: str) -> np.ndarray:
        """Returns a tensor that is there, in memory that nobody changes later."""

    @property
    @abc.abstractmethod
    def kinds(self) -> set[str]:
        """The types of all tensors, by their names in a file."""

    def get(self, key: str, default: Any = None) -> Any:
        """The configuration's value, or the default where it has none."""
        found = self.config.get(key)
        return default if found is None else found

    def number(self, key: str, default: Any = None) -> int:
        """Returns a whole number of the configuration that is at least 1."""
        found = self.get(key, default)
        if type(found) is not int or found < 1:
            raise InputError(
                f"{self.where(key)} is {show(found)}; expected a whole number that is at "
                "least 1"
            )
        return found

    def flag(self, key: str, default: bool) -> bool:
        """Returns true or false of the configuration."""
        found = self.get(key, default)
        if type(found) is not bool:
            raise InputError(
                f"{self.where(key)} is {show(found)}; expected true or false"
            )
        return found

    def rows(self, name: str) -> int:
        """Number of rows of a tensor, 1 where it is missing."""
        shape = self.shape(name) if name in self else ()
        return shape[0] if shape else 1

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Returns a tensor of a shape, half precision as float32."""
        if name not in self:
            raise InputError(
                f"{self.called} has no tensor {name!r}; expected shape {shape}, as "
                f"{self.shapes}; {self.missing}"
            )
        found, kind = self.shape(name), self.kind(name)
        if found != shape:
            raise InputError(
                f"tensor {name!r} of {self.called} has shape {found}; expected {shape}, "
                f"as {self.shapes}; one of the two is another model's"
            )
        if kind not in FLOATS:
            raise InputError(
                f"tensor {name!r} of {self.called} has type {kind}; expected one of "
                f"{', '.join(FLOATS)}; a quantised checkpoint has to be turned back first"
            )
        self.left.discard(name)
        tensor = self.read(name).astype(FLOATS[kind], copy=False)
        if (at := not_finite_at(tensor)) is not None:
            raise InputError(
                f"tensor {name!r} of {self.called} has the value {tensor[at]} at {at}; "
                "every parameter must be finite"
            )
        return tensor

    def same(self, *names: str) -> str:
        """Returns the first of a tensor's names that is stored; all that are, agree."""
        stored = [name for name in names if name in self] or [names[0]]
        for other in stored[1:]:
            shape = self.shape(other)
            if not np.array_equal(
                self.take(stored[0], *shape), self.take(other, *shape)
            ):
                raise InputError(
                    f"tensors {stored[0]!r} and {other!r} of {self.called} differ; they "
                    "are two names of one, leave one of them out"
                )
        return stored[0]

"""The state of a torch module as NumPy arrays, standing where a folder stands."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from jax_models.arguments import show
from jax_models.errors import InputError
from jax_models.format.pretrained.source import Source, kind_of

# Put before all names by what wraps a module: torch.compile, DistributedDataParallel.
WRAPPERS = ("_orig_mod.", "module.")
CONVERT = "{k: v.numpy() for k, v in module.state_dict().items()}"


class State(Source):
    """Arrays by name; what wraps all names is taken away."""

    called = "the state"
    shapes = "the other tensors say"
    missing = "give all that state_dict() returns"
    unknown = "say what they are by embedding=, position=, readout=, or leave them out"

    def __init__(self, state: Any, config: dict[str, Any]) -> None:
        """Holds the arrays."""
        if not isinstance(state, Mapping):
            raise InputError(
                f"state is {type(state).__name__}; expected arrays by name: {CONVERT}"
            )
        for name, array in state.items():
            if not isinstance(name, str) or not isinstance(array, np.ndarray):
                raise InputError(
                    f"state[{name!r}] is {type(array).__name__}; expected NumPy arrays "
                    f"by name: {CONVERT}"
                )
        self.config, self.wrapper = config, ""
        names = list(state)
        while names and (wraps := [x for x in WRAPPERS if _begin_with(names, x)]):
            self.wrapper += wraps[0]
            names = [name.removeprefix(wraps[0]) for name in names]
        self._arrays = dict(zip(names, state.values(), strict=True))
        self.left = set(names)
        self._kinds = {self.kind(name) for name in names}

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    def where(self, key: str) -> str:
        """The name of a configuration key in messages: an argument."""
        return key

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of an array that is there."""
        return self._arrays[name].shape

    def kind(self, name: str) -> str:
        """Returns the type of an array that is there, by its name in a file."""
        return kind_of(self._arrays[name])

    def read(self, name: str) -> np.ndarray:
        """Returns a copy of an array that is there: the caller's may change later."""
        return self._arrays[name].copy()

    @property
    def kinds(self) -> set[str]:
        """The types of the state's arrays, by their names in a file."""
        return self._kinds

    def rows_of(self, what: str, given: Any) -> Float[np.ndarray, "rows width"]:
        """Returns an array of rows that an argument names or is.

        Axes of length 1 of one that is named are left out: modules keep positions
        [n, 1, d].
        """
        if isinstance(given, str):
            name = given.removeprefix(self.wrapper)
            if name not in self:
                raise InputError(
                    f"{what} = {given!r} is no tensor of the state; it has "
                    f"{show(sorted(self.left))}"
                )
        else:
            name = f"{what}="
            if not isinstance(given, np.ndarray):
                raise InputError(
                    f"{what} = {show(given)}; expected the name of a tensor of the state, "
                    "or a NumPy array"
                )
            self._arrays[name] = given
        shape = self.shape(name)
        tensor = self.take(name, *shape)
        if len(shape) == 3 and 1 in shape[:2]:
            tensor = tensor.reshape(-1, shape[2])
        if tensor.ndim != 2 or not tensor.size:
            raise InputError(
                f"{what} has shape {shape}; expected [rows, d], one row or more"
            )
        return tensor


def _begin_with(names: Iterable[str], prefix: str) -> bool:
    return all(name.startswith(prefix) for name in names)

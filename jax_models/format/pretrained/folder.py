"""A Hugging Face folder: its configuration, and its tensors read one by one.

The weights are `model.safetensors`, or shards that `model.safetensors.index.json` lists. A
tensor is read from its file when it is asked for, so that a file is never in memory whole.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from jax_models.arguments import show
from jax_models.errors import InputError

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
AGAIN = "fetch the whole checkpoint again"
# Float types by their names in a file, and what they become.
FLOATS = {"F64": np.float64, "F32": np.float32, "F16": np.float32, "BF16": np.float32}


class Folder:
    """What stands in a folder; tensors are taken by name, and what was not is known."""

    def __init__(self, path: Path) -> None:
        """Reads the configuration and the headers of the weights.

        Raises:
            InputError: for a folder that is not there or not whole.
        """
        if not path.is_dir():
            raise InputError(
                f"{str(path)!r} is no folder; expected one with config.json"
            )
        self.path = path
        self.config = _read_json(path / "config.json")
        self._files: dict[str, Any] = {}
        found = self._find_tensors()
        # Old folders of TensorFlow's time say gamma and beta of norms.
        self._stored: dict[str, str] = {}
        for name in found:
            other = self._stored.setdefault(_renamed(name), name)
            if other != name:
                raise InputError(
                    f"{str(path)!r} has tensors {other!r} and {name!r}, two names of "
                    "one; leave one of them out"
                )
        self._where = {_renamed(name): file for name, file in found.items()}
        self.left = set(self._where)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    def where(self, key: str) -> str:
        """Returns what a message calls a key of the configuration."""
        return f"{key} of {str(self.path / 'config.json')!r}"

    def get(self, key: str, default: Any = None) -> Any:
        """Returns what the configuration says, the default where it says nothing."""
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
        """Returns how many rows a tensor has, 1 where it is missing."""
        shape = self._header(name).get_shape() if name in self._where else []
        return shape[0] if shape else 1

    def _header(self, name: str) -> Any:
        return self._open(self._where[name]).get_slice(self._stored[name])

    def take(self, name: str, *shape: int) -> np.ndarray:
        """Returns a tensor of a shape, half precision as float32.

        Raises:
            InputError: it is missing, of another shape, no float, or not finite.
        """
        if name not in self._where:
            raise InputError(
                f"{str(self.path)!r} has no tensor {name!r}; expected shape {shape}, as "
                f"config.json says; {AGAIN}"
            )
        header = self._header(name)
        found, kind = tuple(header.get_shape()), header.get_dtype()
        if found != shape:
            raise InputError(
                f"tensor {name!r} of {str(self.path)!r} has shape {found}; expected "
                f"{shape}, as config.json says; one of the two is another model's"
            )
        if kind not in FLOATS:
            raise InputError(
                f"tensor {name!r} of {str(self.path)!r} has type {kind}; expected one of "
                f"{', '.join(FLOATS)}; a quantised checkpoint has to be turned back first"
            )
        self.left.discard(name)
        # Opened anew: the pages of a map count as memory for as long as it is open.
        path = self.path / self._where[name]
        with safetensors.safe_open(path, framework="np") as opened:
            tensor = opened.get_tensor(self._stored[name])
        tensor = tensor.astype(FLOATS[kind], copy=False)
        finite = np.isfinite(tensor)
        if not finite.all():
            at = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise InputError(
                f"tensor {name!r} of {str(self.path)!r} has the value {tensor[at]} at "
                f"{at}; every parameter must be finite"
            )
        return tensor

    def same(self, *names: str) -> str:
        """Returns the first of a tensor's names that is stored; all that are, agree."""
        stored = [name for name in names if name in self._where] or [names[0]]
        for other in stored[1:]:
            shape = self._header(other).get_shape()
            if not np.array_equal(
                self.take(stored[0], *shape), self.take(other, *shape)
            ):
                raise InputError(
                    f"tensors {stored[0]!r} and {other!r} of {str(self.path)!r} differ; "
                    "they are two names of one, leave one of them out"
                )
        return stored[0]

    @property
    def kinds(self) -> set[str]:
        """The types of all tensors, by their names in a file."""
        return {self._header(name).get_dtype() for name in self._where}

    def _open(self, file: str) -> Any:
        if file not in self._files:
            path = self.path / file
            try:
                opened: Any = safetensors.safe_open(path, framework="np")
                self._files[file] = opened.__enter__()
            except (safetensors.SafetensorError, TypeError) as error:
                raise InputError(
                    f"{str(path)!r} is not a complete safetensors file: {error}; {AGAIN}"
                ) from error
        return self._files[file]

    def _find_tensors(self) -> dict[str, str]:
        """Every tensor's name and the file that holds it."""
        if (self.path / WEIGHTS).is_file():
            return dict.fromkeys(self._open(WEIGHTS).keys(), WEIGHTS)
        if not (self.path / INDEX).is_file():
            raise InputError(self._without_weights())
        index = _read_json(self.path / INDEX)
        listed = index.get("weight_map")
        if not isinstance(listed, dict) or not all(
            isinstance(file, str) for file in listed.values()
        ):
            raise InputError(
                f"weight_map of {str(self.path / INDEX)!r} is {show(listed)}; expected "
                f"the file of every tensor; {AGAIN}"
            )
        for file in sorted(set(listed.values())):
            # A path elsewhere is nobody's shard.
            if Path(file).name != file or not (self.path / file).is_file():
                raise InputError(
                    f"{str(self.path / INDEX)!r} names {file!r}, and the folder has no "
                    f"such file; {AGAIN}"
                )
            there = set(self._open(file).keys())
            for name in (x for x, where in listed.items() if where == file):
                if name not in there:
                    raise InputError(
                        f"{str(self.path / INDEX)!r} says that {file!r} holds {name!r}, "
                        f"and it does not; {AGAIN}"
                    )
        return listed

    def _without_weights(self) -> str:
        others = (x for end in ("*.bin", "*.pt", "*.pth") for x in self.path.glob(end))
        said = f"{str(self.path)!r} has neither {WEIGHTS} nor {INDEX}"
        for other in sorted(others):
            return (
                f"{said}, and {other.name} is a pickle, which is not read; convert it "
                "where PyTorch is: safetensors.torch.save_file({k: x.clone().contiguous() "
                f'for k, x in torch.load("{other.name}", weights_only=True).items()}}, '
                f'"{WEIGHTS}")'
            )
        return f"{said}; expected the weights of a checkpoint"


def _renamed(name: str) -> str:
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (FileNotFoundError, IsADirectoryError) as error:
        raise InputError(
            f"{str(path.parent)!r} has no file {path.name}; expected the folder of a "
            "checkpoint"
        ) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not JSON: {error}; {AGAIN}") from error
    if not isinstance(found, dict):
        raise InputError(
            f"{str(path)!r} holds {show(found)}; expected an object; {AGAIN}"
        )
    return found

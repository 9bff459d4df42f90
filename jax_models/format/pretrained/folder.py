"""A Hugging Face folder: its configuration, and its tensors read one by one.

The weights are `model.safetensors`, or shards that `model.safetensors.index.json` lists. A
tensor is read from its file when it is asked for, so that a file is never in memory whole.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from jax_models.arguments import CONFIG_BYTES, read_file, show
from jax_models.errors import InputError
from jax_models.format.pretrained.source import Source

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
# Bytes that are read of an open file, at most.
AT_ONCE = 2**25
AGAIN = "fetch the whole checkpoint again"


class Folder(Source):
    """What stands in a folder."""

    shapes = "config.json says"
    missing = AGAIN
    unknown = "the configuration may be that of another model"

    def __init__(self, path: Path) -> None:
        """Reads the configuration and the headers of the weights.

        Raises:
            InputError: for a folder that is not there or not whole.
        """
        if not path.is_dir():
            raise InputError(
                f"{str(path)!r} is no folder; expected one with config.json"
            )
        self.path, self.called = path, repr(str(path))
        self.config = read_json(path / "config.json")
        self._files: dict[str, Any] = {}
        self._read = 0  # bytes since a file was last opened anew
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

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a tensor that is there."""
        return tuple(self._header(name).get_shape())

    def kind(self, name: str) -> str:
        """Returns the type of a tensor that is there, by its name in a file."""
        return self._header(name).get_dtype()

    def _header(self, name: str) -> Any:
        return self._open(self._where[name]).get_slice(self._stored[name])

    def read(self, name: str) -> np.ndarray:
        """Returns a tensor that is there."""
        file = self._where[name]
        tensor = self._open(file).get_tensor(self._stored[name])
        self._read += tensor.nbytes
        if self._read > AT_ONCE:
            # The pages of a map count as memory for as long as it is open.
            self._files.pop(file).__exit__(None, None, None)
            self._read = 0
        return tensor

    @property
    def kinds(self) -> set[str]:
        """The types of all tensors, by their names in a file."""
        return {self.kind(name) for name in self._where}

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
        index = read_json(self.path / INDEX)
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
                f'for k, x in torch.load("{other.name}", map_location="cpu", '
                "weights_only=True).items()}, "
                f'"{WEIGHTS}")'
            )
        return f"{said}; expected the weights of a checkpoint"


def _renamed(name: str) -> str:
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object that a file of a checkpoint holds.

    Raises:
        InputError: there is no such file, or it holds something else.
    """
    if not path.exists() or path.is_dir():
        raise InputError(
            f"{str(path.parent)!r} has no file {path.name}; expected the folder of a "
            "checkpoint"
        )
    content = read_file("file", path, CONFIG_BYTES)
    try:
        found = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{str(path)!r} is not JSON: {error}; {AGAIN}") from error
    if not isinstance(found, dict):
        raise InputError(
            f"{str(path)!r} holds {show(found)}; expected an object; {AGAIN}"
        )
    return found

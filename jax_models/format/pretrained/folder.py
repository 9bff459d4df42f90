"""A Hugging Face folder: its configuration, and its tensors read one by one.

The weights are `model.safetensors`, or shards that `model.safetensors.index.json` lists, else
torch's `pytorch_model.bin`, its shards, or one `.pt` or `.pth`. Each tensor is read from its
file when `read` is called, so that a file is never in memory whole.
"""

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from jaxtyping import Shaped

from jax_models.arguments import has_file, read_json_file, show
from jax_models.errors import InputError, errors_of
from jax_models.format.file import CONVERT
from jax_models.format.pretrained.parts import Source, kind_of
from jax_models.format.pretrained.torch_file import read_torch

FILES = ("model.safetensors", "pytorch_model.bin")  # or their shards, by an index
# Names of files that trainers write beside a model.
BESIDE = re.compile(r"(optimizer|scheduler|scaler|rng_state|training_args).*")
# Bytes that are read of an open file, at most.
AT_ONCE = 2**25
AGAIN = "fetch the whole checkpoint again"
ADAPTER = "adapter_"  # how files of an adapter begin
MERGE = "merge it where peft is: merge_and_unload(), then save_pretrained(folder)"
UNMERGED = "base_model.model."
SHARD = re.compile(r".+-\d+-of-\d+\.\w+")
SHOWN = 12  # files of a folder in a message


class Folder(Source):
    """The configuration and tensors of a checkpoint's folder."""

    shapes = "config.json says"
    missing = AGAIN
    unknown = (
        "if they are of a head, give --head=none (head=) to read the model without it; else "
        "the configuration may be that of another model"
    )

    def __init__(self, path: Path) -> None:
        """Reads the configuration; tensors are known after `list_tensors`."""
        if not path.is_dir():
            advice = "expected one with config.json"
            if path.suffix == ".gguf":
                advice = f"GGUF is not read; {CONVERT}"
            raise InputError(f"{str(path)!r} is no folder; {advice}")
        self.path, self.called = path, repr(str(path))
        if not has_file("file", path / "config.json"):
            raise InputError(self._without("no config.json"))
        self.config = read_json(path / "config.json")

    def list_tensors(self) -> None:
        """Lists the tensors from the headers of the files of weights."""
        path, self.held = self.path, {}  # file of each tensor, and its name there
        self._files: dict[str, Any] = {}
        self._read = 0  # bytes since a file was last opened anew
        for name, file in self._find_tensors().items():
            _, other = self.held.setdefault(_rename(name), (file, name))
            if other != name:
                raise InputError(
                    f"{str(path)!r} has tensors {other!r} and {name!r}, two names of "
                    "one; leave one of them out"
                )
            if UNMERGED in name or ".lora_" in name:
                raise InputError(
                    f"{str(path)!r} has tensor {name!r}: names with {UNMERGED!r} or '.lora_' "
                    f"are of a model whose adapter was not merged into it; {MERGE}"
                )
        self.left = set(self.held)

    def unwrap(self, prefix: str) -> str:
        """Removes the prefix common to all tensor names; returns `prefix` without it."""
        ends = (end(self.held, default="").split(".")[:-1] for end in (min, max))
        common = itertools.takewhile(
            lambda both: both[0] == both[1], zip(*ends, strict=False)
        )
        wrapper = "".join(f"{part}." for part, _ in common)
        if not wrapper or wrapper.startswith(prefix):
            return prefix
        for name in list(self.held):
            self.rename(name, name.removeprefix(wrapper))
        return prefix.removeprefix(wrapper)

    def rename(self, old: str, new: str) -> None:
        """Renames a tensor in this source."""
        self.held[new] = self.held.pop(old)
        self.left ^= {old, new}

    def stored(self, names: Iterable[str]) -> list[str]:
        """Returns the names that the files have for the tensors `names`, sorted."""
        return sorted(self.held[name][1] for name in names)

    def where(self, key: str) -> str:
        """Name of a configuration key in messages: the key and its file."""
        return f"{key} of {str(self.path / 'config.json')!r}"

    def header(self, name: str) -> tuple[tuple[int, ...], str]:
        """Returns the shape of a tensor, and its type in safetensors' words ("F32")."""
        where, stored = self.held[name]
        file = self._open(where)
        if isinstance(file, dict):
            return file[stored].shape, kind_of(file[stored])
        header = file.get_slice(stored)
        return tuple(header.get_shape()), header.get_dtype()

    def read(self, name: str) -> Shaped[np.ndarray, "..."]:
        """Returns a copy of a tensor of this source."""
        where, stored = self.held[name]
        file = self._open(where)
        torch = isinstance(file, dict)
        tensor = file[stored].copy() if torch else file.get_tensor(stored)
        self._read += tensor.nbytes
        if self._read > AT_ONCE:
            # Pages of an open memory map count as memory of the process.
            del self._files[where]
            self._read = 0
        return tensor

    def _open(self, file: str) -> Any:
        path = self.path / file
        if file not in self._files and path.suffix != ".safetensors":
            self._files[file] = read_torch(path)
        if file not in self._files:
            what = f"{str(path)!r} is not a complete safetensors file; {AGAIN}"
            with errors_of(what, safetensors.SafetensorError, TypeError):
                self._files[file] = safetensors.safe_open(path, framework="np")
        return self._files[file]

    def _find_tensors(self) -> dict[str, str]:
        """Name of the file that holds each tensor, by the tensor's name."""
        loose = [x.name for end in ("*.pt", "*.pth") for x in self.path.glob(end)]
        loose = [name for name in loose if not BESIDE.fullmatch(name)]
        for file in (*FILES, *(loose if len(loose) == 1 else ())):
            if has_file("file", self.path / file):
                return dict.fromkeys(self._open(file).keys(), file)
            if has_file("file", index := self.path / f"{file}.index.json"):
                return self._find_shards(index)
        wanted = ", ".join(f"{file}, {file}.index.json" for file in FILES)
        raise InputError(self._without(f"none of {wanted}, nor a single .pt or .pth"))

    def _find_shards(self, path: Path) -> dict[str, str]:
        """Name of the shard that holds each tensor, from the index file, checked."""
        listed = read_json(path).get("weight_map")
        if not isinstance(listed, dict) or not all(
            isinstance(file, str) for file in listed.values()
        ):
            raise InputError(
                f"weight_map of {str(path)!r} is {show(listed)}; expected "
                f"the file of every tensor; {AGAIN}"
            )
        for file in sorted(set(listed.values())):
            # A path into another folder is no shard.
            if Path(file).name != file or not has_file("file", self.path / file):
                raise InputError(
                    f"{str(path)!r} names {file!r}, and the folder has no "
                    f"such file; {AGAIN}"
                )
            there = set(self._open(file).keys())
            for name in (x for x, where in listed.items() if where == file):
                if name not in there:
                    raise InputError(
                        f"{str(path)!r} says that {file!r} holds {name!r}, "
                        f"and it does not; {AGAIN}"
                    )
        return listed

    def _without(self, what: str) -> str:
        """Message on an incomplete folder: `what` it lacks, the files there, and a remedy."""
        names = sorted(x.name for x in self.path.iterdir())
        advice = "expected the folder of a checkpoint"
        if any(x.endswith(".gguf") for x in names):
            advice = f"GGUF is not read; {CONVERT}"
        elif any(x.startswith(ADAPTER) for x in names):
            advice = f"an adapter alone is no model; {MERGE}"
        elif any(map(SHARD.fullmatch, names)):
            advice = "shards are read by their index, NAME.index.json; fetch it too"
        elif any(x.endswith((".bin", ".pt", ".pth")) for x in names):
            advice = f"name the one file that holds the weights {FILES[1]}"
        return f"{str(self.path)!r} has {what}, but {list_files(self.path)}; {advice}"


def _rename(name: str) -> str:
    """A tensor's present name, from that of torch.compile, or of old checkpoints' norms."""
    name = name.replace("_orig_mod.", "")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


def list_files(path: Path) -> str:
    """Text for messages: a folder's first `SHOWN` files and the number of others."""
    names = sorted(x.name for x in path.iterdir())
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return " ".join((", ".join(names[:SHOWN]) + more).split()) or "nothing"


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file of a checkpoint as a dictionary."""
    if not has_file("file", path):
        raise InputError(
            f"{str(path.parent)!r} has no file {path.name}; expected the folder of a "
            "checkpoint"
        )
    found = read_json_file("file", path, remedy=f"; {AGAIN}")
    if not isinstance(found, dict):
        raise InputError(
            f"{str(path)!r} holds {show(found)}; expected an object; {AGAIN}"
        )
    return found

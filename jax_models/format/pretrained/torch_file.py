"""A state dict in torch's zip format, read without torch.

The archive has a stored entry `NAME/data/KEY` of numbers for each storage, and
`NAME/data.pkl`, a pickle of the tensors' names and their views of storages. The pickle is
interpreted opcode by opcode: nothing that it names is imported or called. Names of globals
are `bytes`, which no other opcode makes; three calls are known, and every other opcode and
name is refused.
"""

import math
import pickletools
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from jaxtyping import Shaped, UInt8

from jax_models.arguments import show
from jax_models.errors import InputError

STORAGES = {
    f"torch {name}Storage".encode(): np.dtype(getattr(ml_dtypes, kind, kind))
    for name, kind in (
        pair.split()
        for pair in "Double <f8,Float <f4,Half <f2,BFloat16 bfloat16,Long <i8,Int <i4,"
        "Short <i2,Char i1,Byte u1,Bool ?".split(",")
    )
}
TENSOR = b"torch._utils _rebuild_tensor_v2"
PARAMETER = b"torch._utils _rebuild_parameter"
DICTIONARY = b"collections OrderedDict"
# Opcodes that push plain data, and how many objects others take off the stack.
PLAIN = "BINUNICODE SHORT_BINUNICODE BININT BININT1 BININT2 LONG1 BINFLOAT".split()
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
TAKE = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "SETITEM": 2, "BINPERSID": 1, "STOP": 1}
TAKE |= {"REDUCE": 2, "STACK_GLOBAL": 2, "BUILD": 1}
PICKLE_BYTES, NESTING, MOST_OBJECTS, MOST_AXES = 2**23, 64, 2**22, 8
SAVE = (
    "nothing in it was executed; where torch is, save the state alone: "
    'torch.save(state, "pytorch_model.bin"), where state is model.state_dict(), or of an '
    'older file torch.load(file, weights_only=True, map_location="cpu")'
)


class Group(tuple):
    """Tuple built by a pickle; `depth`: nesting, `weight`: objects and letters, repeated."""

    depth = weight = 1


class State(dict):
    """Dict built by a pickle; `depth`: nesting, `weight`: objects and letters, repeated."""

    depth = weight = 1


def read_torch(path: Path) -> dict[str, Shaped[np.ndarray, "..."]]:
    """Returns the tensors of a torch file by name, as views of the memory-mapped file."""
    try:
        entries = _find_entries(path, np.asarray(np.memmap(path, np.uint8, "r")))
        order = entries.get("byteorder", np.frombuffer(b"little", np.uint8)).tobytes()
        _expect(order == b"little", f"is of byte order {show(order)}")
        pickled = entries["data.pkl"]
        _expect(pickled.size <= PICKLE_BYTES, f"has a data.pkl of {pickled.size} bytes")
        state = _run(pickled.tobytes(), entries)
        kind = type(state)
        _expect(kind is State, f"holds {kind.__name__}, no state dict")
        others = show([x for x in state if not isinstance(state[x], np.ndarray)])
        _expect(
            others == "[]", f"holds {others} among {len(state)}: no tensors by name"
        )
        return state
    except InputError as error:
        raise InputError(f"{str(path)!r} {error}; {SAVE}") from error
    except Exception as error:  # of readers of archives and opcodes, on any bytes
        raise InputError(
            f"{str(path)!r} is not a complete torch file: {show(error)}; fetch the whole "
            "checkpoint again"
        ) from error


def _expect(right: bool, found: str) -> None:
    if not right:
        raise InputError(found)


def _find_entries(
    path: Path, content: UInt8[np.ndarray, "_"]
) -> dict[str, UInt8[np.ndarray, "_"]]:
    """Bytes of every entry of an archive, by the entry's name without the root folder."""
    older = content[:2].tobytes() == b"\x80\x02"
    _expect(not older, "is of torch's format before version 1.6, which is not read")
    with zipfile.ZipFile(path) as archive:
        listed = archive.infolist()
    root, found = listed[0].filename.partition("/")[0] + "/", {}
    for entry in listed:
        where, size = entry.filename, entry.file_size
        name = where.removeprefix(root)
        outside = root == "/" or name == where or ".." in name.split("/")
        known = not outside and name not in found
        _expect(known, f"has the entry {show(where)}, no part of a state")
        plain = not entry.compress_type and not entry.flag_bits & 1
        plain = plain and entry.compress_size == size
        _expect(plain, f"has the entry {show(where)} packed")
        mark, *more = struct.unpack_from("<4s22xHH", content.data, entry.header_offset)
        found[name] = content[entry.header_offset + 30 + sum(more) :][:size]
        whole = mark == b"PK\x03\x04" and found[name].size == size
        _expect(whole, f"ends within its entry {show(where)}")
    whole = sum(x.size for x in found.values()) <= content.size
    _expect(whole, "has entries that overlap")
    return found


def _run(content: bytes, entries: dict[str, UInt8[np.ndarray, "_"]]) -> Any:
    """Returns the object that a pickle builds, by interpreting its opcodes."""
    stack, marks, memo = [], [], {}
    for opcode, argument, _ in pickletools.genops(content):
        name = opcode.name
        marked = name in ("TUPLE", "SETITEMS")
        count = len(stack) - marks.pop() if marked else TAKE.get(name, 0)
        items = [stack.pop() for _ in range(count)][::-1]
        if name in PLAIN or name in CONSTANTS:
            stack.append(CONSTANTS.get(name, argument))
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name in ("BINPUT", "LONG_BINPUT", "MEMOIZE"):
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif name == "MARK":
            marks.append(len(stack))
        elif name == "EMPTY_TUPLE" or name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(_nest(Group(items), items))
        elif name == "EMPTY_DICT":
            stack.append(State())
        elif name in ("SETITEM", "SETITEMS"):
            named = isinstance(stack[-1], State)
            named = named and all(type(x) is str for x in items[::2])
            _expect(named, f"puts {show(items[::2])} into {type(stack[-1]).__name__}")
            _nest(stack[-1], items).update(zip(items[::2], items[1::2], strict=True))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            asked = (argument or " ".join(items)).encode()
            known = asked in (*STORAGES, TENSOR, PARAMETER, DICTIONARY)
            _expect(known, f"asks for {asked.decode()!r}, no part of a state dict")
            stack.append(asked)
        elif name == "BINPERSID":
            stack.append(_find_storage(entries, *items[0]))
        elif name == "REDUCE":
            stack.append(_call(*items))
        elif name == "STOP":
            return items[0]
        else:  # what is built of a dictionary is `_metadata`, versions of modules
            built = name == "BUILD" and isinstance(stack[-1], State)
            known = built or name in ("PROTO", "FRAME")
            _expect(known, f"has the opcode {name}, no part of a state dict")
    return None


def _nest(held: Any, members: list[Any]) -> Any:
    held.depth = max([held.depth, *(1 + getattr(x, "depth", 0) for x in members)])
    _expect(held.depth <= NESTING, f"is nested more than {NESTING} deep")
    # An object that is in many places is counted each time: so often it would be printed.
    held.weight += sum(
        len(x) if isinstance(x, str) else getattr(x, "weight", 1) for x in members
    )
    _expect(held.weight <= MOST_OBJECTS, f"has one of over {MOST_OBJECTS} objects")
    return held


def _find_storage(
    entries: dict[str, UInt8[np.ndarray, "_"]],
    word: Any,
    kind: Any,
    key: Any,
    _: Any,
    count: Any,
) -> Shaped[np.ndarray, "numbers"]:
    plain = type(key) is str and type(count) is int and type(kind) is bytes
    _expect(plain, "has a storage of another kind, key or size than any")
    held = entries[f"data/{key}"]
    right = word == "storage" and held.size == count * STORAGES[kind].itemsize
    _expect(right, f"has {held.size} bytes for {show(count)} numbers of {show(kind)}")
    return held.view(STORAGES[kind])


def _call(what: Any, arguments: Any) -> Any:
    """Result of one of three pickled calls: a tensor, a parameter's, or an empty dict."""
    if what == DICTIONARY and not arguments:
        return State()
    if what == PARAMETER:
        return arguments[0]
    _expect(what == TENSOR, f"calls {show(what)}, no part of a state dict")
    storage, offset, shape, strides = arguments[:4]
    sizes = (offset, *shape, *strides)
    # Only of a contiguous storage does the size bound the span of a view.
    whole = storage.ndim == 1 and storage.flags.c_contiguous and len(shape) <= MOST_AXES
    whole = whole and all(type(x) is int and x >= 0 for x in sizes)
    _expect(whole, f"has a tensor of shape {show(shape)}, strides {show(strides)}")
    steps = [(n - 1) * step for n, step in zip(shape, strides, strict=True)]
    span = 0 if 0 in shape else 1 + sum(steps)
    _expect(
        max(math.prod(shape), offset + span) <= storage.size,
        f"has a tensor of shape {show(shape)}, strides {show(strides)}, at {offset} of a "
        f"storage of {storage.size} numbers",
    )
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[offset:], shape, steps)

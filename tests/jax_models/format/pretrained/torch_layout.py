"""Archives as torch writes them, put together from opcodes; hostile ones can be too."""

import io
import struct
import zipfile

import numpy as np

STORAGES = {
    "float64": "DoubleStorage",
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "int64": "LongStorage",
}


def text(word):
    held = word.encode()
    return b"X" + struct.pack("<I", len(held)) + held


def number(value):
    if 0 <= value < 2**31:
        return b"J" + struct.pack("<i", value)
    held = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(held)]) + held


def named(module, name):
    return f"c{module}\n{name}\n".encode()


def group(*items):
    return b"(" + b"".join(items) + b"t"


def sizes(values):
    return group(*map(number, values))


DICTIONARY = named("collections", "OrderedDict") + b")R"


def storage(kind, key, count):
    place = text("cpu")
    held = group(text("storage"), named("torch", kind), text(key), place, number(count))
    return held + b"Q"


def tensor(held, offset, shape, strides):
    """A call that rebuilds a tensor."""
    arguments = (
        held,
        number(offset),
        sizes(shape),
        sizes(strides),
        b"\x89",
        DICTIONARY,
    )
    return named("torch._utils", "_rebuild_tensor_v2") + group(*arguments) + b"R"


def state(**tensors):
    items = (text(name) + held for name, held in tensors.items())
    return b"\x80\x02" + DICTIONARY + b"(" + b"".join(items) + b"u."


def archive(pickle, entries, name="archive", **options):
    """The bytes of a file: a pickle, and storages by their keys."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", **options) as held:
        held.writestr(f"{name}/data.pkl", pickle)
        held.writestr(f"{name}/byteorder", "little")
        for key, content in entries.items():
            held.writestr(f"{name}/data/{key}", content)
        held.writestr(f"{name}/version", "3\n")
    return file.getvalue()


def save_torch(tensors, path):
    """Writes arrays as `torch.save` writes a state dict."""
    views, entries = {}, {}
    for at, (name, array) in enumerate(tensors.items()):
        kind = STORAGES[str(array.dtype)]
        strides = np.array(np.empty(array.shape, np.uint8).strides)
        held = storage(kind, str(at), array.size)
        views[name] = tensor(held, 0, array.shape, strides.tolist())
        entries[str(at)] = array.tobytes()
    path.write_bytes(archive(state(**views), entries, path.stem))

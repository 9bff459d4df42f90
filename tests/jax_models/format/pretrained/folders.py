"""Copies of the small checkpoints with one thing changed."""

import json
import pathlib
import shutil

from safetensors.numpy import load_file, save_file

FIXTURES = pathlib.Path(__file__).parent / "fixtures"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def weights_of(name):
    return load_file(FIXTURES / name / WEIGHTS)


def copied(name, place, tensors=None, **said):
    """A copy of a fixture; what is said stands in its configuration, `...` leaves out."""
    folder = place / "folder"
    folder.mkdir()
    config = json.loads((FIXTURES / name / "config.json").read_text()) | said
    config = {key: value for key, value in config.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    if tensors is None:
        shutil.copyfile(FIXTURES / name / WEIGHTS, folder / WEIGHTS)
    else:
        save_file(tensors, folder / WEIGHTS)
    return folder


def sharded(folder, files=("one.safetensors", "two.safetensors")):
    """The folder with its weights in files that an index lists; returns the index."""
    tensors = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    listed = {name: files[at % len(files)] for at, name in enumerate(sorted(tensors))}
    for file in files:
        held = {name: tensors[name] for name in listed if listed[name] == file}
        save_file(held, folder / file)
    (folder / INDEX).write_text(json.dumps({"weight_map": listed}))
    return listed

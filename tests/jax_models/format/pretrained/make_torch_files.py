"""Files that torch writes, and their tensors as safetensors: run where torch is.

`python make_torch_files.py` writes them into `torch_files`, beside this file: state dicts in
every float type with views of shared storages, a pickled module, and a state dict in the
format before version 1.6.
"""

import importlib
import pathlib
from typing import Any

from safetensors.numpy import save_file

torch: Any  # of the interpreter that runs this, not of the tests'
FOLDER = pathlib.Path(__file__).parent / "torch_files"


def make_state() -> dict[str, Any]:
    """A module's state, and tensors that are views, parameters, empty or single."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    state = module.state_dict()
    weight = state["0.weight"]
    state |= {"tied": weight, "transposed": weight.T, "part": torch.arange(10.0)[3:7]}
    state |= {"scalar": torch.tensor(2.5), "empty": torch.zeros((0, 3))}
    state |= {"parameter": torch.nn.Parameter(torch.ones(2))}
    for kind in ("float64", "float16", "bfloat16", "int64", "uint8", "bool"):
        state[kind] = torch.tensor([0, 1, 3]).to(getattr(torch, kind))
    return state


def main() -> None:
    torch.manual_seed(0)
    state = make_state()
    torch.save(state, FOLDER / "state.bin")
    torch.save(dict(state), FOLDER / "plain.bin")
    torch.save(state, FOLDER / "protocol_4.bin", pickle_protocol=4)
    torch.save({"state_dict": state, "epoch": 3}, FOLDER / "nested.bin")
    torch.save(torch.nn.Linear(3, 2), FOLDER / "module.bin")
    torch.save(state, FOLDER / "older.bin", _use_new_zipfile_serialization=False)
    held = {name: x.detach().contiguous() for name, x in state.items()}
    held["bfloat16"] = held["bfloat16"].float()
    save_file(
        {k: x.numpy().copy() for k, x in held.items()}, FOLDER / "state.safetensors"
    )


if __name__ == "__main__":
    torch = importlib.import_module("torch")
    FOLDER.mkdir(exist_ok=True)
    main()

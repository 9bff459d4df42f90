"""What every JSON output says about its own making."""

from pathlib import Path
from typing import Any

from absl import flags

from bounds.provenance import provenance
from bounds.store import ResultStore

STORE_NAME = "results.sqlite"


def run_record(command: str, options: flags.FlagValues) -> dict[str, Any]:
    """Returns the head of a JSON output: command, flags, seed and provenance.

    Args:
        command: The command's name.
        options: Its flags.

    Returns:
        A dictionary to which the results are added.
    """
    values = {name: options[name].value for name in options}
    return {
        "command": command,
        "flags": values,
        "seed": values.get("seed"),
        "dtype": values.get("dtype"),
        **provenance().as_dict(),
    }


def open_store(options: flags.FlagValues) -> ResultStore:
    """Returns the store in the output folder of a command, open for writing.

    Args:
        options: Flags of `define_output`.

    Returns:
        The store, a context manager.

    Raises:
        OSError: It cannot be used; see `ResultStore`.
    """
    return ResultStore(Path(options.out) / STORE_NAME)

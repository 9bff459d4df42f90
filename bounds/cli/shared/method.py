"""`--method` and its options: `--rtol`, `--budget`, `--precision`, `--propose`."""

from typing import Any

from absl import flags

import jax_models as jm
from bounds.influence import Incremental, Proposed, Screened
from bounds.influence.method import Way

# Method that each option is of, as words of the command line.
OPTION_OF = {
    "rtol": "--method=screened",
    "budget": "--method=screened",
    "precision": "--method=incremental",
}


def read_method(options: flags.FlagValues) -> Way | str:
    """Method with its options, or its name; refuses options of another method."""
    name: str = options.method
    given: dict[str, Any] = {
        option: options[option].value
        for option in ("rtol", "budget", "precision", "propose")
        if option in options and options[option].value != options[option].default
    }
    made: Way | str = name
    if "propose" in given:
        made, read = Proposed(given["propose"], name), {"propose"}
    elif name == "screened":
        budget = given.get(
            "budget", options["budget"].value if "budget" in options else 0
        )
        made = Screened(given.get("rtol", 0.0), budget or None)
        read = {"rtol", "budget"}
    elif "precision" in given and name in ("auto", "incremental"):
        made, read = Incremental(given["precision"]), {"precision"}
    else:
        read = set()
    for option in given.keys() - read:
        beside = f"--propose={given['propose']}" if "propose" in given else ""
        raise jm.InputError(
            f"--{option}={given[option]} has no effect with {beside or f'--method={name}'}: "
            f"it is of {OPTION_OF[option]}; leave it out"
        )
    return made

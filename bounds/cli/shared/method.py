"""`--method` with its options: `--rtol`, `--budget`, `--precision`, `--propose`."""

from typing import Any

import jax_models as jm
from bounds.influence import Incremental, Proposed, Screened
from bounds.influence.method import Way

# Default of each option, and the method that it is of.
DEFAULTS = {"rtol": 0.0, "budget": 32, "precision": None, "propose": None}
OPTION_OF = {
    "rtol": "--method=screened",
    "budget": "--method=screened",
    "precision": "--method=incremental",
}


def read_method(options: Any) -> Way | str:
    """Method with its options, or its name; refuses options of another method."""
    name: str = options.method
    given: dict[str, Any] = {
        option: value
        for option, default in DEFAULTS.items()
        if (value := getattr(options, option, default)) != default
    }
    made: Way | str = name
    if "propose" in given:
        made, read = Proposed(given["propose"], name), {"propose"}
    elif name == "screened":
        budget = given.get("budget", DEFAULTS["budget"]) or None
        made, read = Screened(given.get("rtol", 0.0), budget), {"rtol", "budget"}
    elif "precision" in given and name in ("auto", "incremental"):
        made, read = Incremental(given["precision"]), {"precision"}
    else:
        read = set()
    other = f"--method={name}"
    if "propose" in given:
        other = f"--propose={given['propose']}"
    for option in given.keys() - read:
        raise jm.InputError(
            f"--{option}={given[option]} has no effect with {other}: it is of "
            f"{OPTION_OF[option]}; leave it out"
        )
    return made

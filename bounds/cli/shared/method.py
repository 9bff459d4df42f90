"""`--method` with its options: `--rtol`, `--budget`, `--precision`, `--propose`."""

from typing import Any

import jax_models as jm
from bounds.cli.shared.options import fields_of
from bounds.influence import Incremental, Proposed, Screened
from bounds.influence.method import Way

# Method that each option is of.
OPTION_OF = {
    "rtol": "--method=screened",
    "budget": "--method=screened",
    "precision": "--method=incremental",
}


def read_method(options: Any) -> Way | str:
    """Method with its options, or its name; refuses options of another method."""
    name: str = options.method
    declared = fields_of(type(options))
    given: dict[str, Any] = {
        option: value
        for option in (*OPTION_OF, "propose")
        if option in declared
        and (value := getattr(options, option)) != declared[option].default
    }
    made: Way | str = name
    if "propose" in given:
        made, read = Proposed(given["propose"], name), {"propose"}
    elif name == "screened":
        read = {"rtol", "budget"}
        limits = {option: given[option] for option in read & given.keys()}
        if limits.get("budget") == 0:  # as many as it takes
            limits["budget"] = None
        made = Screened(**limits)
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

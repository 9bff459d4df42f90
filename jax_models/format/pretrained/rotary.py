"""Rotary positions of a configuration, as layers of the format have them."""

from typing import Any

from jax_models.arguments import choose_name, expect_integer, expect_number, show
from jax_models.errors import InputError
from jax_models.format.pretrained.source import Source
from jax_models.format.pretrained.yarn import Yarn

Scaling = dict[str, Any] | Yarn


def rotary_of(
    folder: Source,
    # of a head
    width: int,
    # turned share of a head by default; None where whole heads turn
    share: float | None = None,
) -> dict[str, Any]:
    """Settings of all layers for the rotary positions of a configuration.

    They stand in `rope_parameters`, or in `rope_theta` and `rope_scaling` before it; where
    a configuration has both, they have to mean one thing: readers differ in the one
    they take.
    """
    keys = [x for x in ("rope_parameters", "rope_scaling") if folder.get(x)]
    length = folder.get("max_position_embeddings")
    scalings = [read_scaling(folder.where(x), folder.get(x), length) for x in keys]
    if scalings[1:] and scalings[0] != scalings[1]:
        found, older = (show(folder.get(key)) for key in keys)
        raise InputError(
            f"{folder.where(keys[0])} is {found} and `rope_scaling` {older}, which "
            "disagree; leave one out"
        )
    said = {f" in {key}": folder.get(key) for key in keys} | {"": folder.config}
    thetas = {
        (where := folder.where(f"{name}{place}")): expect_number(
            where, one[name], 0, above=True
        )
        for place, one in said.items()
        for name in ("rope_theta", "rotary_emb_base")
        if one.get(name) is not None
    }
    if len(set(thetas.values())) > 1:
        each = " and ".join(f"{where} is {theta:g}" for where, theta in thetas.items())
        raise InputError(f"{each}, which disagree; leave one out")
    for place, one in said.items():
        for name in ("partial_rotary_factor", "rotary_pct"):
            if (found := one.get(name)) is None:
                continue
            where = folder.where(f"{name}{place}")
            if share is not None:
                share = expect_number(where, found, 0, above=True)
            elif found != 1:
                raise InputError(
                    f"{where} is {show(found)}; expected 1: these families turn whole heads"
                )
    dims = width if share is None else int(width * share)
    theta = next(iter(thetas.values()), 10000.0)
    scaling = next(iter(scalings), None)
    if isinstance(scaling, Yarn) and dims != width:
        raise InputError(
            f"{folder.where(keys[0])} is of type yarn, whose factor of scores is not read "
            f"where {dims} of the {width} coordinates of a head are turned"
        )
    return settings_of(dims, theta, scaling)


def settings_of(dims: int, theta: float, scaling: Scaling | None) -> dict[str, Any]:
    """A layer's settings for rotary positions of that theta and scaling."""
    entry: dict[str, Any] = {"dims": dims, "theta": theta}
    if not isinstance(scaling, Yarn):
        return {"rotary": entry | ({} if scaling is None else {"scaling": scaling})}
    listed = scaling.frequencies(theta, dims).tolist()
    entry["scaling"] = {"kind": "listed", "frequencies": listed}
    temperature = {"kind": "constant", "value": scaling.temperature}
    return {"rotary": entry, "temperature": temperature}


def read_scaling(
    # key that has it, as a message names it
    where: str,
    found: Any,
    # YaRN's original length where the entry has none
    length: Any = None,
) -> Scaling | None:
    """Scaling of positions as the format has it, or YaRN's; None for none."""
    if not isinstance(found, dict):
        raise InputError(f"{where} is {show(found)}; expected an object")
    kind = found.get("rope_type", found.get("type", "default"))
    choose_name(f"rope_type in {where}", kind, ("default", "linear", "llama3", "yarn"))
    if kind == "yarn":
        return Yarn.read(where, found, length)
    names = {"factor": "factor"} if kind != "default" else {}
    if kind == "llama3":
        names |= {
            "low_frequency_factor": "low_freq_factor",
            "high_frequency_factor": "high_freq_factor",
        }
    scaling: dict[str, Any] = {
        name: expect_number(f"{own} in {where}", found.get(own), 0, above=True)
        for name, own in names.items()
    }
    if kind == "llama3":
        own = "original_max_position_embeddings"
        length = expect_integer(f"{own} in {where}", found.get(own), 1)
        scaling["original_length"] = length
    return {"kind": kind} | scaling if scaling else None

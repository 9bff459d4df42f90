"""Conversion of a configuration's rotary positions to the model format; YaRN."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from jax_models.arguments import choose_name, expect_integer, expect_number, show
from jax_models.errors import InputError
from jax_models.format.pretrained.parts import Source


@dataclasses.dataclass(frozen=True)
class Yarn:
    """Settings of YaRN, which scales rotary frequencies for longer texts (Peng et al. 2024).

    Coordinate pairs that turn more than `beta_fast` times within the original length keep
    their frequency; for those that turn less than `beta_slow` times it is divided by the
    factor; between them the two are interpolated linearly in the pair's index.
    """

    factor: float
    original_length: float
    beta_fast: float
    beta_slow: float
    truncate: bool  # whether interpolation starts and ends at integer indices
    attention_factor: float

    @classmethod
    def read(
        cls,
        where: str,
        found: Mapping[str, Any],
        # the original length where the entry has none
        length: Any,
    ) -> "Yarn":
        """Returns the settings in an entry `found` of a configuration, called `where`."""

        def number(name: str, default: Any = None) -> float:
            value = default if found.get(name) is None else found[name]
            return expect_number(f"{name} in {where}", value, 0, above=True)

        factor = number("factor")
        both = found.get("mscale"), found.get("mscale_all_dim")
        default = _attention_factor(factor, 1.0)
        if all(both):
            scales = (number(name) for name in ("mscale", "mscale_all_dim"))
            above, below = (_attention_factor(factor, scale) for scale in scales)
            default = above / below
        return cls(
            factor,
            number("original_max_position_embeddings", length),
            number("beta_fast", 32),
            number("beta_slow", 1),
            found.get("truncate") is not False,
            number("attention_factor", default),
        )

    @property
    def temperature(self) -> float:
        """Temperature that has the effect of the attention factor on scores."""
        # Queries and keys are both multiplied by the attention factor.
        return self.attention_factor**-2

    def frequencies(self, theta: float, dims: int) -> Float[np.ndarray, "frequencies"]:
        """Scaled frequencies of the dims / 2 coordinate pairs of a head."""
        turns = np.array([self.beta_fast, self.beta_slow])
        pair = dims * np.log(self.original_length / (turns * 2 * math.pi))
        low, high = pair / (2 * math.log(theta))
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, dims - 1)
        high += 0.001 * (low == high)
        ramp = np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)
        plain = theta ** (-np.arange(0, dims, 2) / dims)
        return plain / self.factor * ramp + plain * (1 - ramp)


def _attention_factor(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


Scaling = dict[str, Any] | Yarn
# Keys of configurations with a scaling, and the scalings that are read.
KEYS = ("rope_parameters", "rope_scaling")
KINDS = ("default", "linear", "llama3", "yarn")


def check_scalings(folder: Source) -> None:
    """Raises `InputError` for a configuration whose rotary positions are scaled otherwise."""
    for key in KEYS:
        where, found = folder.where(key), folder.get(key, {})
        read_kind(where, found)
        for name, entry in found.items():
            if isinstance(entry, dict):  # of layers of the type `name`
                read_kind(f"{name} in {where}", entry)


def read_kind(where: str, found: Any) -> str:
    """Returns the kind of scaling of an entry `found`, called `where`."""
    if not isinstance(found, dict):
        raise InputError(f"{where} is {show(found)}; expected an object")
    kind = found.get("rope_type", found.get("type", "default"))
    return choose_name(f"rope_type in {where}", kind, KINDS)


def rotary_of(
    folder: Source,
    # of a head
    width: int,
    # turned share of a head by default; None where whole heads turn
    share: float | None = None,
) -> dict[str, Any]:
    """Returns the config keys of layers for a configuration's rotary positions.

    Configurations have `rope_parameters`, or the older `rope_theta` and `rope_scaling`; if
    both are present, they must agree.
    """
    keys = [x for x in KEYS if folder.get(x)]
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
    """Returns a layer's keys `rotary` and, for YaRN, `temperature` in the format."""
    entry: dict[str, Any] = {"dims": dims, "theta": theta}
    if not isinstance(scaling, Yarn):
        return {"rotary": entry | ({} if scaling is None else {"scaling": scaling})}
    listed = scaling.frequencies(theta, dims).tolist()
    entry["scaling"] = {"kind": "listed", "frequencies": listed}
    temperature = {"kind": "constant", "value": scaling.temperature}
    return {"rotary": entry, "temperature": temperature}


def read_scaling(
    # words for the key of `found` in messages
    where: str,
    found: Any,
    # YaRN's original length where the entry has none
    length: Any = None,
) -> Scaling | None:
    """Returns the `scaling` entry in the format, or `Yarn`; None without scaling."""
    kind = read_kind(where, found)
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

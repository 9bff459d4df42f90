"""A scalar target: the decision of a model, and its values at many inputs."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from bounds.influence.methods.exhaustive import base_outputs
from bounds.influence.moved import LEAST, radii_of, requests
from bounds.influence.request import InfluenceRequest
from bounds.influence.targets.base import STATIC, Target
from bounds.influence.targets.change import value_of
from bounds.influence.targets.logit_difference import LogitDifference
from bounds.influence.ties import Ties, judge_ties
from bounds.rounding.moved_inputs import RUNS
from bounds.rounding.radii import farthest
from jax_models import InputError, Transformer
from jax_models.model.pytree import register
from jax_models.model.transformer import reduce_reports
from jax_models.run.evaluate import TieRule, require_readout

# Tokens in one call of the compiled program.
BLOCK = 2**14


@register
@dataclasses.dataclass(frozen=True)
class AcceptMargin(Target):
    """One logit less a threshold: not negative where a string is accepted."""

    name = "accept_margin"
    label = "|Δ margin|, nats"

    class_: int = dataclasses.field(metadata=STATIC)
    threshold: float = dataclasses.field(metadata=STATIC)

    def value(self, base: Float[Array, "*batch classes"]) -> Float[Array, "*batch 1"]:
        """Margin of a row of logits."""
        return base[..., self.class_, None] - self.threshold

    def change(
        self, base: Float[Array, "classes"], change: Float[Array, "*batch classes"]
    ) -> Float[Array, "*batch 1"]:
        """Change of the logit."""
        return change[..., self.class_, None]


def decision_of(model: Transformer) -> Target:
    """Target whose sign is the decision of a model's read-out."""
    require_readout(model, "a sensitivity counts changes of a decision: give a target")
    if model.accept is not None:
        return AcceptMargin(model.accept.class_, model.accept.threshold)
    if model.classes == 1:
        return AcceptMargin(0, 0.0)
    if model.classes == 2:
        return LogitDifference(1, 0)
    raise InputError(
        f"the model has {model.classes} logits and no accept rule, so no sign is its "
        "decision; give a target of one number, such as LogitDifference(s, t)"
    )


@jax.jit
def _outputs(
    model: Any,
    target: Any,
    inputs: Int[Array, "inputs tokens"],
    rows: Int[Array, "rows"],
    run: Int[Array, ""],
) -> Any:
    """Values of a block of inputs, the largest magnitude, and the ties met."""

    def one(tokens: Int[Array, "tokens"]) -> Any:
        outputs, largest, report = base_outputs(model, target, tokens, rows, run)
        return value_of(target, outputs), largest, report

    values, largest, reports = jax.vmap(one)(inputs)
    return values, largest.max(), reduce_reports(reports)


def scalar_values(
    request: InfluenceRequest, inputs: Int[np.ndarray, "inputs tokens"], ties: TieRule
) -> tuple[Float[np.ndarray, "inputs"], Float[np.ndarray, "inputs"]]:
    """Values of a request's scalar target at every input, and their rounding radii."""
    size = max(1, BLOCK // inputs.shape[1])
    blocks = np.split(inputs, range(size, len(inputs), size))
    found, magnitude, met = [], 1.0, []
    for one in requests(request, RUNS):
        given = one.model, one.target_value
        rows, parts = jnp.asarray(one.rows), []
        for block in blocks:
            values, largest, report = _outputs(
                *given, jnp.asarray(block), rows, one.moved_run
            )
            parts.append(np.asarray(values, np.float64).ravel())
            if one.run == 0:
                magnitude = max(magnitude, float(largest))
                met += [Ties.of(report)] if request.model.is_hard else []
        found.append(np.concatenate(parts))
    if met:
        all_met = functools.reduce(Ties.merge, met)
        judge_ties(request.model, all_met, "the watched row", ties)
    base, *moved = found
    if not (finite := np.isfinite(base)).all():
        raise InputError(
            f"the target has the value {base[~finite][0]} at an input: the model overflows "
            "or divides by zero"
        )
    moves = farthest(base.shape, (np.abs(x - base) for x in moved))
    moves = np.maximum(moves, LEAST)
    return base, radii_of(request, base, moves, magnitude, subtracted=True)

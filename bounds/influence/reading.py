"""What is read of the changes of what is watched, on the device: a scan's, signed or not.

An influence is the norm of one change; a scan reads one number of each row, or all.
Shapes: p substitutions, r rows, c what is watched of each.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax.numpy as jnp
import numpy as np
from jax import Array

from bounds.influence.row_targets import RowsTarget, measure_watched, move_watched
from bounds.influence.sizes import scaled_norm
from bounds.influence.target import AnyTarget
from jax_models import Transformer

Kind: TypeAlias = Literal["norm", "largest", "signed"]


@dataclasses.dataclass(frozen=True)
class Reading:
    """What is read of changes [..., r, c].

    Attributes:
        kind: "norm", the Euclidean norm over c, or the change itself where c is 1;
            "largest", the largest absolute value over c; "signed", all of c.
        chosen: which of c alone count; None counts all.
    """

    kind: Kind
    chosen: tuple[int, ...] | None = None

    def __call__(self, changes: Any, norm: Callable[[Any], Any] = scaled_norm) -> Any:
        """Returns what is read, [..., r], or [..., r, c] of "signed".

        Args:
            changes: [..., r, c], of JAX or of NumPy.
            norm: over the last axis, of such an array.
        """
        if self.chosen is not None:
            changes = changes[..., np.asarray(self.chosen)]
        if self.kind == "signed":
            return changes
        if self.kind == "largest":
            return abs(changes).max(axis=-1)
        return changes[..., 0] if changes.shape[-1] == 1 else norm(changes)


def read_changes(
    model: Transformer,
    outputs: Array,
    changes: Array,
    target: AnyTarget | RowsTarget,
    reading: Reading | None = None,
    sizes: Array | None = None,
) -> tuple[Array, Array]:
    """Returns what is read of targets' changes, and what it is rounded relative to.

    Args:
        model: a transformer.
        outputs: the row after the last layer, before the final norm [d], or rows [r, d].
        changes: of those [p, d], or [p, r, d].
        target: as in `exit_program`, or of all rows.
        reading: what is read; None reads norms of one target.
        sizes: what the changes are rounded relative to [p, d], or [p, r, d];
            themselves if it is not given.

    Returns:
        Norms [p] and their like [p]; or what is read [p, r, ...], and its like [p, r].
    """
    sizes = jnp.abs(changes) if sizes is None else sizes
    if reading is None:
        return measure_watched(model, outputs, changes, target, sizes)
    if outputs.ndim == 1:
        outputs, changes, sizes = outputs[None], changes[:, None], sizes[:, None]
    moved, relative = move_watched(model, outputs, changes, target, sizes)
    return reading(moved), relative


def over_rows(values: Any, relative: Any) -> Any:
    """Returns values [p] so that they spread over what is relative [p] or [p, r]."""
    return values.reshape(values.shape + (1,) * (relative.ndim - 1))

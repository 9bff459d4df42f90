"""P and N, S and U: what a formula was at the neighbour, and since when."""

from jax_models.assembly import CONSTANT
from jax_models.logic.boolean import add_rounded, rounded
from jax_models.logic.builder import Builder
from jax_models.logic.modes import Mode, Side
from jax_models.logic.selection import end_mark, select


def neighbour(builder: Builder, mode: Mode, side: Side, operand: int) -> int:
    """Returns the coordinate of P φ (prefix) or N φ (suffix).

    Two heads look for the nearest even and the nearest odd position, by the score
    ±(-1)^j of gap 2. Of an odd i the neighbour is the nearest even position, of an even
    one the nearest odd, and a gate takes the one or the other. At the end of the string
    a head may find no position of its kind and return anything between 0 and 1: the mark
    of the end closes both gates.

    Args:
        builder: the plan.
        mode: the mode.
        side: "prefix" for P, "suffix" for N.
        operand: the coordinate of φ.

    Source: docs/logic.md, section 6.2, Theorem 12 and Theorem 13.
    """
    sign = builder.position(alternating=True)
    end = end_mark(builder, side)
    out = builder.coordinate("previous" if side == "prefix" else "next")
    for parity in (1.0, -1.0):
        nearest = select(builder, mode, side, {sign: parity}, 2.0, operand)
        same_parity = {sign: parity / 2, CONSTANT: 0.5}
        add_rounded(builder, out, {nearest: 1.0}, [same_parity, {end: 1.0}])
    return out


def since(
    builder: Builder, mode: Mode, side: Side, left: int | None, right: int
) -> int:
    """Returns the coordinate of φ S ψ (prefix) or φ U ψ (suffix).

    It is ψ at the nearest position where ¬φ ∨ ψ. If none is seen then no ψ is, all
    values are 0, and whatever is attended to is right.

    Args:
        builder: the plan.
        mode: the mode.
        side: "prefix" for S, "suffix" for U.
        left: the coordinate of φ; None for the formula T.
        right: the coordinate of ψ.

    Source: docs/logic.md, section 6.3, Theorem 15 and Theorem 16.
    """
    score = {right: 1.0}
    if left is not None:
        # The Boolean less 1, which scores do not notice: -[φ and not ψ].
        pending = builder.coordinate("pending")
        builder.neuron({left: 1.0, right: -1.0}, {pending: 1.0})
        score = {pending: -1.0}
    nearest = select(builder, mode, side, score, 1.0, right)
    return rounded(builder, "since" if side == "prefix" else "until", nearest)

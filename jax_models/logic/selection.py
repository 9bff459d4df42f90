"""Heads that pick one position out: the marks of the ends, rightmost and leftmost heads.

On the side "prefix" a row sees j <= i, the mark is [i = 1] and a head picks the rightmost
maximiser of a score that it sees; on the side "suffix" it sees j >= i, the mark is
[i = n] and the head picks the leftmost.
"""

from collections.abc import Mapping

from jax_models.assembly import CONSTANT
from jax_models.logic.builder import (
    Builder,
    add_rounded,
    constant,
    plus,
    rounded,
    times,
)
from jax_models.logic.modes import SHARPNESS, Mode, Side, mask_of


def end_mark(builder: Builder, side: Side) -> int:
    """Returns the coordinate [i = 1] or [i = n], an exact Boolean.

    The mean of -(-1)^j over j <= i is 1 at i = 1 and at most 1/3 after it, that of
    (-1)^j over j >= i is 1 or -1 at i = n and within 1/3 before it.

    Args:
        builder: the plan.
        side: "prefix" for the first position, "suffix" for the last.

    Source: docs/logic.md, section 6.1.
    """
    sign = builder.position(alternating=True)
    factor = -1.0 if side == "prefix" else 1.0
    mean = builder.attend(f"{side} mean of signs", mask_of(side), {sign: factor})
    known = ("end mark", side)
    if known not in builder.memory:
        mark = builder.coordinate("first" if side == "prefix" else "last")
        for turn in (1.0,) if side == "prefix" else (1.0, -1.0):
            builder.neuron({mean: 2.0 * turn, CONSTANT: -1.0}, {mark: 1.0})
        builder.memory[known] = mark
    return builder.memory[known]


def reciprocal(builder: Builder, side: Side | None) -> int:
    """Returns the coordinate 1/i, 1/(n - i + 1), or 1/n for no side.

    It is the mean of the mark of the end over the prefix, the suffix, or everything.

    Source: docs/logic.md, section 6.1.
    """
    mark = end_mark(builder, side or "prefix")
    mask = mask_of(side) if side else "none"
    return builder.attend("reciprocal", mask, {mark: 1.0})


def select(
    builder: Builder,
    mode: Mode,
    side: Side,
    score: Mapping[int, float],
    gap: float,
    value: int,
) -> int:
    """Returns the coordinate of the value at the rightmost (leftmost) maximiser.

    With s_j the score, of gap γ, and g = `SHARPNESS`, the head's scores over its
    temperature are, up to a constant per row,

        T, TB, U:  (n g/γ) (s_j ± γ j/n)
        FT:        (i² g/γ) (s_j - γ/j)
        FU:        (i g/γ) s_j + g j,

    whose deficits against the maximiser are different multiples of g on each side of
    it: the value is within 2/(e^g + 1) of that of the maximiser, for values in [0, 1].

    Args:
        builder: the plan.
        mode: the mode.
        side: "prefix" for the rightmost, "suffix" for the leftmost.
        score: the form s.
        gap: a number γ > 0 by which scores below the maximum are below it.
        value: the coordinate of the values.

    Source: docs/logic.md, section 6.1; docs/theory/softmax-approximation.md, section 5,
    Lemma 8.
    """
    scale = SHARPNESS / gap
    turn = 1.0 if side == "prefix" else -1.0
    query: list[dict[int, float]] = [constant(scale)]
    match mode.name:
        case "FT":
            inverse = reciprocal(builder, "prefix")
            key = [plus(score, {inverse: -gap})]
        case "FU":
            place = builder.position(1)
            query = [{place: scale}, constant(SHARPNESS)]
            key = [dict(score), {place: 1.0}]
        case _:
            fraction = builder.position(1, -1)
            key = [plus(score, {fraction: turn * gap})]
            if mode.temperature is None:
                query = [times(scale, {builder.position(0, 1): 1.0})]
    return builder.attend(
        "selected", mask_of(side), {value: 1.0}, query, key, mode.select_exponent
    )


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

"""Heads that pick one position out: the marks of the ends, rightmost and leftmost heads.

On the side "prefix" a row sees j <= i, the mark is [i = 1] and a head picks the rightmost
maximiser of a score that it sees; on the side "suffix" it sees j >= i, the mark is
[i = n] and the head picks the leftmost.
"""

from collections.abc import Mapping

from jax_models.assembly import CONSTANT
from jax_models.logic.builder import Builder, constant, plus, times
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

    Args:
        builder: the plan.
        side: which positions are counted.

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

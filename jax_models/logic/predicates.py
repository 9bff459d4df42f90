"""Predicates: of the position, read off its encoding, and of a count, by a lookup."""

from jax_models.logic.boolean import add_rounded
from jax_models.logic.builder import Builder, constant, times
from jax_models.logic.counting import comparison, fraction, has_any, lookup
from jax_models.logic.modes import SHARPNESS, Mode, Side
from jax_models.logic.selection import reciprocal
from jax_models.logic.syntax import Predicate
from jax_models.position import ResidueTerm


def of_position(builder: Builder, predicate: Predicate) -> int:
    """Returns the coordinate θ(p), a term of the position encoding."""
    return builder.encoded(ResidueTerm(0, predicate.modulus, predicate.residues))


def of_count(
    builder: Builder, mode: Mode, side: Side, truth: int, predicate: Predicate
) -> int:
    """Returns the coordinate of θ(C).

    θ of the position is looked up at C where C >= 1; where it is 0 the answer is θ(0).

    Args:
        builder: the plan.
        mode: the mode.
        side: of the count.
        truth: the coordinate of what is counted.
        predicate: θ.

    Source: docs/logic.md, section 6.6.
    """
    values = of_position(builder, predicate)
    some = has_any(builder, mode, side, truth)
    none = builder.negation(some)
    out = builder.coordinate("predicate of count")
    if mode.name == "FU":
        _add_by_halves(builder, mode, out, truth, values, none)
    else:
        found = lookup(builder, mode, side, truth, SHARPNESS, values)
        add_rounded(builder, out, {found: 1.0}, [{none: 1.0}])
    if 0 in predicate.residues:
        builder.neuron({none: 1.0}, {out: 1.0})
    return out


def _add_by_halves(
    builder: Builder, mode: Mode, into: int, truth: int, values: int, none: int
) -> None:
    """Adds θ(C) in mode FU, where C >= 1.

    The cubic scores (κ/i)(3Cj² - 2j³) find the position C if 2C >= i, else they find
    i - C, a count of at least i/2 too; with the position known, a second lookup by
    scores -(j - C)² finds θ. The number found differs from C by less than 1/8, so that
    these fall off by at least 3/4 of what they do about C itself.

    Source: docs/logic.md, section 6.6; docs/theory/softmax-approximation.md, section 4,
    Lemma 7'.
    """
    if "everywhere" not in builder.memory:
        builder.memory["everywhere"] = builder.coordinate("everywhere", constant=1.0)
    everywhere = builder.memory["everywhere"]
    upper = comparison(
        builder, mode, [(2, "prefix", truth), (-1, "prefix", everywhere)], 1
    )
    kappa = 2 * SHARPNESS
    place = builder.position(1)
    unit = {reciprocal(builder, "prefix"): kappa}
    share = fraction(builder, "prefix", truth)
    cubic = [{builder.position(2): 3.0}, {builder.position(3): -2.0}]
    quadratic = [{place: 2.0}, {builder.position(2): -1.0}]
    g = SHARPNESS / 0.75
    lower = builder.negation(upper)
    # Where 2C >= i: look up C, by its share ρ; elsewhere i - C, by 1 - ρ.
    halves = (
        ({share: kappa}, 0.0, 1.0, lower),
        ({share: -kappa, **constant(kappa)}, 1.0, -1.0, upper),
    )
    for query, base, sign, other in halves:
        found = builder.attend(
            "looked up", "future", {place: 1.0}, [query, unit], cubic
        )
        number = {place: base, found: sign}
        read = builder.attend(
            "looked up",
            "future",
            {values: 1.0},
            [times(g, number), constant(g)],
            quadratic,
        )
        add_rounded(builder, into, {read: 1.0}, [{other: 1.0}, {none: 1.0}])

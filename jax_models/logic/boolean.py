"""Boolean gates: neurons that make exact Booleans of exact or of approximate ones.

A real number of at most 1/4 stands for false, one of at least 3/4 for true. Rounding it
takes two neurons, and both of a pair read the same form up to its constant, so that in
floating point their difference is exactly 0 or 1.
"""

from collections.abc import Iterable, Mapping

from jax_models.assembly import CONSTANT
from jax_models.logic.builder import Builder, constant, plus, times

# A conjunction reads the conjuncts of its conjuncts, which saves layers, unless there are
# more: the prefixes of a long chain would take a quadratic number of weights.
MAX_CONJUNCTS = 64


def add_rounded(
    builder: Builder,
    into: int,
    number: Mapping[int, float],
    gates: Iterable[Mapping[int, float]] = (),
) -> None:
    """Adds to a coordinate an approximate Boolean, rounded, where all gates are 0.

    R(x; g) = relu(2x - 1/2 - 2G) - relu(2x - 3/2 - 2G), G the sum of the gates: the
    rounded x where G = 0, and 0 where G >= 1, as long as x <= 5/4.

    Args:
        builder: the plan.
        into: the coordinate.
        number: the form x.
        gates: forms that are exact Booleans.

    Source: docs/theory/softmax-approximation.md, section 6, Lemma 9.
    """
    closed = times(-2.0, plus(*gates))
    read = plus(times(2.0, number), closed)
    builder.neuron(plus(read, constant(-0.5)), {into: 1.0})
    builder.neuron(plus(read, constant(-1.5)), {into: -1.0})


def rounded(builder: Builder, name: str, number: int) -> int:
    """Returns the coordinate of an approximate Boolean, rounded to an exact one.

    Args:
        builder: the plan.
        name: of the new coordinate.
        number: the coordinate of the approximate one.
    """
    out = builder.coordinate(name)
    add_rounded(builder, out, {number: 1.0})
    return out


def conjunction(builder: Builder, name: str, conjuncts: Iterable[int]) -> int:
    """Returns the coordinate relu(Σ a - (k - 1)) of the conjunction of k Booleans.

    Args:
        builder: the plan.
        name: of the new coordinate.
        conjuncts: coordinates of exact Booleans, all different.
    """
    read = dict.fromkeys(conjuncts, 1.0)
    out = builder.coordinate(name)
    builder.neuron(plus(read, constant(1.0 - len(read))), {out: 1.0})
    return out


def disjunction(builder: Builder, name: str, disjuncts: Iterable[int]) -> int:
    """Returns the coordinate 1 - relu(1 - Σ a) of the disjunction of Booleans.

    Args:
        builder: the plan.
        name: of the new coordinate.
        disjuncts: coordinates of exact Booleans, all different.
    """
    read = dict.fromkeys(disjuncts, -1.0)
    out = builder.coordinate(name, constant=1.0)
    builder.neuron({**read, CONSTANT: 1.0}, {out: -1.0})
    return out

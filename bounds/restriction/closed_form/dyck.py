"""Theorem 8 for DYCK: a restriction whose completions can still be well-bracketed.

For n even and L layers of H heads, put P opening brackets first and P closing ones
last; the window of M = n - 2P positions between them starts free. A step, one for each
layer l but the last, leaves each bracket of the window free with probability p_l, fixes
the others by fair coins and repairs activations whose decision trees are deeper than
t_l by fixing more. With W_j the sum of the fixed brackets (±1) among the first j of the
window, let J = max_j max(-W_j, W_M - W_j) >= |W_M|. G is an upper bound on the free
positions before a step, F the number in the end, and k as many as closing fixes, which
makes the output constant.
docs/theory/hard-attention.md, section 7, has the proof. One bracket type of 2DYCK is
1DYCK.
"""

import dataclasses
import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Any

from bounds.numbers import interval
from bounds.numbers.statements import instance, probability, several, whole
from bounds.restriction.closed_form.route_switching import (
    SwitchingStep,
    closed_form_switching,
)
from bounds.restriction.closed_form.tower import Tower, least_integer

# An interval in a proof, a float in a search.
Real = Any
WIDE = Fraction(11, 5)
SLACK = Fraction(1, 2**20)
# Of the closed form: bits by which its trees are deeper, its spreads and risk, and how
# often the length is doubled before it is given up.
BITS, SPREAD, DELTA, MOST_ROUNDS = 12, Fraction(1, 20), Fraction(1, 100), 400


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Functions of one number type: intervals for proofs, floats for searches."""

    real: Callable[[Fraction | int], Real]  # takes an exact number
    sqrt: Callable[[Real], Real]  # of a number >= 0
    log: Callable[[Real], Real]  # natural, of a number > 0
    exp: Callable[[Real], Real]
    least: Callable[[Real], Any]  # a lower bound that compares with integers


CERTIFIED = Numbers(
    interval.rational, interval.sqrt, interval.log, interval.exp, lambda x: x.a
)
FLOATS = Numbers(float, math.sqrt, math.log, math.exp, lambda x: x)


@dataclasses.dataclass(frozen=True)
class DyckParameters:
    """Parameters of a proof that L >= 2 layers cannot recognise DYCK (`dyck_threshold`).

    Attributes:
        num_heads: H.
        steps: p_l <= 1/2 and t_l for l = 1 … L - 1.
        deep: R_l, upper bounds on the share of activations whose decision trees are deeper
            than t_l and are repaired by fixing bits.
        spreads: c_l > 0: the sum moves by c_l √G at most; None where only J is held.
        delta: δ < 1/4, the risk that too few or too many positions stay free.

    Raises:
        ValueError: A number is outside its range, or there is no step.
    """

    num_heads: int
    steps: tuple[SwitchingStep, ...]
    deep: tuple[Fraction, ...]
    spreads: tuple[Fraction | None, ...]
    delta: Fraction

    def __post_init__(self) -> None:
        vars(self).update(
            num_heads=whole("num_heads", self.num_heads, 1),
            steps=several("steps", self.steps, SwitchingStep),
            deep=several("deep", self.deep, Fraction, int),
            spreads=several("spreads", self.spreads, Fraction, int, type(None)),
            delta=probability("delta", self.delta),
        )
        if self.delta >= Fraction(1, 4):
            raise ValueError(f"delta is {self.delta}, expected a number in (0, 1/4)")
        if not len(self.steps) == len(self.deep) == len(self.spreads) > 0:
            raise ValueError(
                f"{len(self.steps)} steps, {len(self.deep)} shares of deep activations "
                f"and {len(self.spreads)} spreads, expected as many of each"
            )
        for index, (step, _, spread) in enumerate(self.columns):
            if step.star_probability > Fraction(1, 2):
                raise ValueError(
                    f"star_probability is {step.star_probability}, expected at most 1/2"
                )
            if spread is not None and spread <= 0:
                raise ValueError(f"spreads[{index}] is {spread}, expected a number > 0")

    @property
    def columns(self) -> Iterable[tuple[SwitchingStep, Fraction, Fraction | None]]:
        """Each step with its share R_l of deep activations and its spread c_l."""
        return zip(self.steps, self.deep, self.spreads, strict=True)


def one_layer_dyck_threshold(num_heads: int) -> int:
    """Returns an even length from which on one layer cannot recognise DYCK.

    n = 4H.

    Args:
        num_heads: H >= 1.

    Returns:
        The length; every larger even one is out of reach too.

    Raises:
        ValueError: H is below 1.

    Source:
        docs/theory/hard-attention.md, section 7, with a window of 2H.
    """
    # With one layer nothing is random, the query's bracket is among the fixed ones,
    # k = H, and P = H, M = 2H are enough.
    return 4 * whole("num_heads", num_heads, 1)


def dyck_threshold(
    parameters: DyckParameters, numbers: Numbers = CERTIFIED
) -> int | None:
    """Returns an even length from which on DYCK is out of reach, found by bisection.

    The least even n with F - 2k >= 0 at P = J + k, F the free brackets and k those that
    closing fixes, as far as the arithmetic tells: enclosures may put it later, never
    earlier.

    Args:
        parameters: Of L - 1 steps.
        numbers: The arithmetic; in floats the answer is an estimate.

    Returns:
        The length; every larger even one is out of reach too. None where the steps
        lose more than they leave, at any length.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, section 7.
    """
    instance("numbers", numbers, Numbers)
    if dyck_slope(instance("parameters", parameters, DyckParameters)) <= 0:
        return None
    # It holds for all even n from the first on, as F grows at least, and J and k at most,
    # in proportion.
    return 2 * least_integer(lambda half: proves(parameters, 2 * half, numbers), 0)


def proves(
    parameters: DyckParameters, length: int, numbers: Numbers = CERTIFIED
) -> bool:
    """Whether `parameters` put DYCK out of reach at an even length and all larger ones."""
    return numbers.least(dyck_margin(parameters, length, numbers)) >= 0


def dyck_margin(parameters: DyckParameters, length: int, numbers: Numbers) -> Real:
    """Returns a lower bound on the margin F - 2k, at P = J + k."""
    n = numbers.real(length)
    closing = (parameters.num_heads + 1) * parameters.steps[-1].depth
    # The window is what two prefixes of J + k leave, and J is bounded by an upper bound G
    # on the window: a G slightly above what solves this equation is tried.
    bound = n
    for _ in range(4):
        steps = _upper_bounds(parameters, n, bound, numbers)
        bound = n - 2 * (sum(x + loss for x, _, loss in steps) + closing)
        if not numbers.least(bound) > 2:
            return numbers.real(-1)
    bound = bound * (1 + numbers.real(SLACK))
    steps = _upper_bounds(parameters, n, bound, numbers)
    window = n - 2 * (sum(x + loss for x, _, loss in steps) + closing)
    if not numbers.least(bound - window) >= 0:
        return numbers.real(-1)
    free = window - 2
    log_once = numbers.log(numbers.real(1 / parameters.delta))
    for step, (_, moved, loss) in zip(parameters.steps, steps, strict=True):
        if not numbers.least(free) > 0:
            break
        p = numbers.real(step.star_probability)
        spread = numbers.sqrt(2 * p * (1 - p) * free * log_once)
        # Repairs cost two brackets, one of them to balance.
        free = p * free - spread - moved - 2 * loss
    # Closing fixes k = (H + 1) t_{L-1} brackets more, with P = J + k.
    return free - 2 * closing


def dyck_slope(parameters: DyckParameters) -> float:
    """Estimate of (F - 2k) / n for long inputs, without their random deviations."""
    losses, depth = [], 1
    for step, deep, spread in parameters.columns:
        risk = float(_repair_risk(parameters, step, spread is None))
        if spread is not None:
            risk *= _central(float(spread), math.inf, FLOATS)
        losses.append((parameters.num_heads + 1) * depth * float(deep) / risk)
        depth = step.depth
    left = 1 - 2 * sum(losses)
    for step, loss in zip(parameters.steps, losses, strict=True):
        left = float(step.star_probability) * left - 2 * loss
    return left


def _repair_risk(
    parameters: DyckParameters, step: SwitchingStep, loose: bool
) -> Fraction:
    """Ratio β / γ of a step: β bounds Pr[too many repairs], γ Pr[W_M moves by <= c √G]."""
    # δ' = γ/20 and β = γ (0.949 - 2δ), or γ = 1, δ' = δ and β = 0.999 - 3δ where the sum
    # is not held to y (`loose`): then γ (1 - 2δ) > δ' + β, and all that is asked happens
    # at once with positive probability. In the last step F' needs no upper bound, which
    # saves one δ.
    deviations = 1 if step is parameters.steps[-1] else 2
    rest = Fraction(999, 1000) - deviations * parameters.delta
    return rest - (parameters.delta if loose else Fraction(1, 20))


def _upper_bounds(
    parameters: DyckParameters, n: Real, window: Real, numbers: Numbers
) -> list[tuple[Real, Real, Real]]:
    """Upper bounds, by step, on the rise of J, move of W_M and repaired brackets."""
    log_once = numbers.log(numbers.real(1 / parameters.delta))
    free, depth, bounds = window, 1, []
    for step, deep, spread in parameters.columns:
        p, root = numbers.real(step.star_probability), numbers.sqrt(free)
        if spread is None:
            log_risk = numbers.log(numbers.real(2 / parameters.delta))
            chance = numbers.real(1)
        else:
            chance = _central(numbers.real(spread), root, numbers)
            if not numbers.least(chance) > 0:
                return [(n, n, n)] * len(parameters.steps)
            log_risk = numbers.log(40 / chance)
        risk = chance * numbers.real(_repair_risk(parameters, step, spread is None))
        # J rises by less than x = √(2 v G ln(2/δ')) with probability at least 1 - δ', where
        # v is 1 if it or u is larger (Doob's inequality).
        u = log_risk / ((1 - p) * free)
        variance = (1 - p) * (1 + u / 2 + u * u / 4)
        if not (numbers.least(1 - u) >= 0 and numbers.least(1 - variance) >= 0):
            variance = numbers.real(1)
        repairs = numbers.real((parameters.num_heads + 1) * depth * deep)
        x = numbers.sqrt(2 * variance * free * log_risk)
        # Where the sum is not held to y it moves by x at most, as |S| <= J. At most
        # R_l (n + 1) / β activations are too deep with probability 1 - β (Markov; the
        # one more is a read-out position, if there is one).
        moved = x if spread is None else numbers.real(spread) * root
        bounds.append((x, moved, (n + 1) * repairs / risk))
        # F' <= p G + √(G ln(1/δ) / 2), with probability 1 - δ over the stars.
        free = p * free + numbers.sqrt(free * log_once / 2)
        depth = step.depth
    return bounds


def _central(width: Real, root: Real, numbers: Numbers) -> Real:
    """Lower bound on Pr[W_M moves by <= c √G] in a step; c = `width`, √G = `root`."""
    # The larger of Hoeffding's bound, and of one by the unimodality of a sum of coins with
    # z = 11/5 (docs/theory/hard-attention.md, section 7).
    tail = lambda z: 1 - 2 * numbers.exp(-z * z / 2)
    wide = numbers.real(WIDE)
    far = tail(width)
    if root == math.inf:
        share = width / wide
    else:
        share = (width * root - 1) / (wide * root + 1)
    near = share * tail(wide)
    return near if numbers.least(near - far) > 0 and width < wide else far


def closed_form_dyck(num_layers: int, num_heads: int) -> Tower | None:
    """Returns a length from which on DYCK is out of reach, for L >= 2.

    The first 2 · 4^i times Corollary 9's threshold for PARITY that `proves` accepts.

    Args:
        num_layers: L >= 2.
        num_heads: H >= 1.

    Returns:
        An even length, certified; None where none was accepted, or beyond 10^6 bits.

    Raises:
        ValueError: A number is outside its range.

    Source:
        docs/theory/hard-attention.md, sections 6 and 7, Corollary 9.
    """
    layers = whole("num_layers", num_layers, 2)
    heads = whole("num_heads", num_heads, 1)
    closed = closed_form_switching(layers, heads)
    steps, deep, depth = [], [], 1
    for l, bits in enumerate(closed.bits):
        p = Fraction(100, 832 * depth)
        more = BITS * (l + 1)
        deep.append(Fraction(1128 * heads, 1000 * 2 ** (bits + more)))
        depth += heads * (bits + more - 1)
        steps.append(SwitchingStep(p, depth))
    spreads = (SPREAD,) * len(steps)
    parameters = DyckParameters(heads, tuple(steps), tuple(deep), spreads, DELTA)
    if closed.length.level:
        return None
    half = int(closed.length.top)
    for _ in range(MOST_ROUNDS):
        if proves(parameters, 2 * half):
            return Tower.of(2 * half)
        half <<= 2
    return None

"""The audit of the printed proof of Lemma 5: `python -m bounds.lemma5.audit` prints it.

The lemma (Hahn 2020) bounds the change of activations after layer k when the symbol at
position i of n is exchanged; j is another position, D the distance of the two embeddings.
Its constants are H heads, the bound F on activations ("literal": as printed, "tight": the
true bound), the bound A on logits, C_fact the growth of F by layer, and C made of A and the
Lipschitz constant L_f of f_act, which maps an activation and its averages (attended values,
softmax-weighted means of keys y_w) to the next. For every step that fails both sides of the
printed inequality are computed in an explicit model: the left one exactly, the right one
from the constants of `bounds.lemma5.closed_form`.

Most models are one-dimensional attention over groups of equal keys, with 60 digits. A
group of 10^12 equal keys costs as much as one key, so a violation that needs such lengths
is computed exactly, not extrapolated. docs/lemma5-audit.md holds exactly the tables.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from mpmath import MPContext

from bounds.lemma5.closed_form import (
    DotProduct,
    PrintedConstants,
    printed_tight,
    scaled_causal_average_influence,
)
from bounds.numbers.notation import markdown_table

__all__ = ["Finding", "all_findings", "findings_table", "harmonic_table"]

# 60 digits: the smallest change that matters below is 1e-36 of what it is a change of.
CONTEXT: Any = MPContext()
CONTEXT.dps = 60

# An mpmath number, whose type mpmath does not declare to checkers.
Real: TypeAlias = Any


@dataclasses.dataclass(frozen=True)
class Finding:
    """Both sides of one printed inequality, left <= right, in one model.

    Attributes:
        step: Its place in the printed proof, by the list in docs/lemma5-audit.md.
        printed: The inequality.
        model: The attention, activations and numbers of the evaluation.
        left: Its left side, exact up to 40 digits at least.
        right: Its right side; zero where the claim is that the left side vanishes.
    """

    step: str
    printed: str
    model: str
    left: Real
    right: Real

    @property
    def holds(self) -> bool:
        """Whether the inequality is true in this model."""
        return bool(self.left <= self.right)

    @property
    def ratio(self) -> float:
        """Left side over right side, inf where the right is 0; above 1 it is violated."""
        return float(self.left / self.right) if self.right else float("inf")


def real(value: float | int | str | Real) -> Real:
    """`value` as a number of 60 digits: a float exactly, a string read as a decimal."""
    return CONTEXT.mpf(value)


def average(slope: Real, groups: Sequence[tuple[Real, int]]) -> Real:
    """Attended value Σ α_w y_w, α = softmax(slope · y_w), over groups (y_w, their number)."""
    # Only differences of logits matter; a common one is taken out for good measure.
    values, counts = zip(*groups, strict=True)
    weights = [
        count * CONTEXT.exp(slope * (value - values[0]))
        for value, count in zip(values, counts, strict=True)
    ]
    return CONTEXT.fdot(weights, values) / CONTEXT.fsum(weights)


_OWN = "‖y_i^(k) − y'_i^(k)‖ ≤ C^{2k} D"
_STEP = real("1e-8")
LENGTHS = (64, 256, 1024, 4096)
DEPTHS = (1, 2, 3)
_CASES = ((6, 12), (8, 10), (8, 12), (10, 10), (10, 12))
OWN_LENGTHS = (11, 101, 1001, 10001)


# Step 8: |y_i^(k) - y'_i^(k)| <= C^{2k} D lacks the factor H^k.
#
# One dimension, H equal heads, half of the other keys +1, half -1, logits mu y_i y_w,
# f_act = L_f Σ_h b_h clipped to [-1, 1], y_i = 0 -> D. Every average moves by about mu D,
# so y_i by H L_f mu D, while the right side does not know H.
#
# The arithmetic before it, with the o(1) replaced by the bound of the step for j != i,
# needs n >= H^k/(2 - 1/C).
def many_heads_findings() -> Iterator[Finding]:
    """Findings of step 8: the claim on position i at 1200 heads, its arithmetic at n = 2."""
    heads, mu, distance = 1200, 0.12, real("1e-3")
    # The slope is 1 + e^{2A} of the literal reading, A = 4 mu.
    slope = 1 + CONTEXT.exp(8 * real(mu))
    # At y_i = 0 the logits are zero and the keys cancel: the average is 0.
    left = _unclipped(heads * slope * _balanced(real(mu) * distance, distance, 10001))
    for name, norm in _READINGS.items():
        # The number of heads does not enter the claim about position i.
        claim = _constants(mu, float(slope), norm).own(1, 1.0)
        model = f"H = {heads}, mu = {mu}, n = 10001, D = 1e-3; {name}"
        yield Finding("8", _OWN, model, left, real(claim.value) * distance)
    constant, length = real(_constants(mu, float(slope), 2.0).constant.b), 2
    yield Finding(
        "8",
        "L_f (C^{2k−2} D + H^k C^{2k−1} D/n) ≤ C^{2k} D",
        f"the same constants, k = 1, H = {heads}, n = {length}, D = 1; sure "
        f"from n = {int(CONTEXT.ceil(heads / (2 - 1 / constant)))} on",
        slope * (1 + heads * constant / length),
        constant**2,
    )


# F by its reading where no activation is longer than 1.
_READINGS = {"literal F = 2": 2.0, "tight F = 1": 1.0}


def _constants(mu: float, lipschitz: float, norm: float) -> PrintedConstants:
    """Printed constants of one head with logits mu y_j y_w; F is `norm`."""
    return printed_tight(
        scores=[DotProduct(mu)], norm=norm, output_lipschitz=lipschitz, num_heads=1
    )


def _balanced(slope: Real, own: Real, length: int) -> Real:
    """Attended value if half of the other keys are +1, half -1, and key i is `own`."""
    half = (length - 1) // 2
    return average(slope, [(real(1), half), (real(-1), half), (real(own), 1)])


def _unclipped(change: Real) -> Real:
    """Change of an output clipped at 1, `change`; an ArithmeticError where it exceeds 1."""
    if change > 1:
        raise ArithmeticError(f"the output {change} leaves the clip at 1")
    return change


# The conclusion for j != i when C_fact is read too small: false at moderate n.
#
# Both models have u_i = u_j = +1 and all other u_w = -1.
#
# *Biases ignored.* L = 2, y^(0) = ε u with ε = 1e-12, layer 1 f_act = y + S with the bias
# S = A/ε, layer 2 f_act = b; logits y_j y_w. The homogeneous part has growth 1, so the
# printed F is 2ε and the printed A nothing; but the logits of layer 2 are A u_w.
#
# *C_fact below 1.* L = 1, f_act = 0.01 b, logits 4 y_j y_w, y^(0) = u: the printed
# F = 0.02 does not even bound the embeddings.
def growth_constant_findings() -> Iterator[Finding]:
    """Findings of step 9 with C_fact too small: biases ignored, and C_fact below 1."""
    small, own = real("1e-12"), (real(1), 1 - _STEP)
    for a, n in ((3, 2000), (4, 2000), (4, 100000)):
        bias = a / small
        # Layer 1 adds the bias to every activation; the query j is a key too.
        query, moved = small + bias, [small * x + bias for x in own]
        model = (
            "L = 2, y^(0) = ε u, ε = 1e-12, layer 1 adds a bias A/ε that C_fact = 1 "
            f"leaves out; A = {a}, n = {n}"
        )
        left = _average_change(query, moved, query, bias - small, n)
        constants = _constants(1.0, 1.0, 2 * float(small))
        yield _off_i(model, left, constants, n, small * _STEP, layer=2)
    a, n, factor = 4, 10000, 0.01
    left = real(factor) * _average_change(real(a), own, real(1), real(-1), n)
    # `printed` refuses a growth below 1; its F would be 2 C_fact.
    constants = _constants(float(a), factor, 2 * factor)
    model = f"L = 1, f_act = 0.01 b, C_fact = 0.01, F = 0.02; A = {a}, n = {n}"
    yield _off_i(model, left, constants, n, _STEP)


def _average_change(
    slope: Real, own: Sequence[Real], query: Real, rest: Real, length: int
) -> Real:
    """Change of the attended value at j: key y_i takes two values `own`, others are fixed."""
    before, after = (
        average(slope, [(one, 1), (query, 1), (rest, length - 2)]) for one in own
    )
    return abs(after - before)


def _off_i(
    model: str,
    left: Real,
    constants: PrintedConstants,
    length: int,
    distance: Real,
    layer: int = 1,
) -> Finding:
    """Finding on the printed conclusion for j != i, of step 9."""
    printed = "‖y_j^(k) − y'_j^(k)‖ ≤ H^k C^{2k} D/n"
    right = real(constants.others(layer, length, 1.0).value) * distance
    return Finding("9", printed, model, left, right)


# Lemma 5 is not true of every row of masked attention.
#
# Uniform causal averaging, values the activations, no skip. Row 2 gives symbol 1 the
# weight 1/2 at every length, so no constant C makes C/n a bound. At the last row, n times
# the influence of symbol 1 grows like (ln n)^{L-1}/(L-1)!: harmonic numbers.
def causal_mask_findings() -> Iterator[Finding]:
    """Findings on the lemma's bound at row 2 of a causal average, for growing n."""
    constants, half = _constants(0.0, 1.0, 1.0), real(1) / 2
    for n in LENGTHS:
        model = f"uniform causal averaging, i = 1, j = 2, D = 1, A = 0; n = {n}"
        finding = _off_i(model, half, constants, n, real(1))
        yield dataclasses.replace(finding, step="lemma")


# The conclusion for j != i with F the true norm bound: false for large A.
#
# One dimension, L = H = 1, y_i = y_j = 1, the other n - 2 keys -1, logits A y_j y_w, and
# f_act = L_f (b - b_0) clipped to [-1, 1], L_f = 1 + e^{2A}, b_0 the average before. y_i
# moves by a tiny D. Once n is far above e^{2A} the average moves by about e^{2A}(1 + 2A)
# D/n, and the ratio of the two sides tends to (1 + 2A)/(16 (1 + e^{-2A})). With the
# literal F = 2 the printed A is four times as large and the claim is true, as it always
# is (closed form C2).
def tight_norm_findings() -> Iterator[Finding]:
    """Findings of step 9 (the bound at j != i): several A and n, tight F, once literal F."""
    distance, one = real("1e-20"), real(1)
    cases = *((*case, "tight F = 1") for case in _CASES), (10, 12, "literal F = 2")
    for a, log10_length, reading in cases:
        length, slope = 10**log10_length, 1 + CONTEXT.exp(2 * real(a))
        own = one, 1 - distance
        moved = slope * _average_change(real(a), own, one, -one, length)
        constants = _constants(float(a), float(slope), _READINGS[reading])
        model = (
            "y_i = y_j = 1, the others −1, logits A y_j y_w, f_act of slope "
            f"1 + e^{{2A}}; A = {a}, n = 10^{log10_length}; {reading}"
        )
        yield _off_i(model, _unclipped(moved), constants, length, distance)


# Step 7: at j = i the change of an average is not o(1): the query itself moves.
#
# Half of the other keys are +1, half -1, logits y_i y_w, and y_i goes from 0 to 1. The
# average goes from 0 to tanh 1, however long the input.
def own_position_findings() -> Iterator[Finding]:
    """Findings of step 7: the change of the average at i, for growing lengths."""
    for n in OWN_LENGTHS:
        model = (
            f"half of the other keys +1, half −1, logits y_i y_w, y_i = 0 → 1; n = {n}"
        )
        left = _balanced(real(1), 1, n) - _balanced(real(0), 0, n)
        yield Finding("7", "‖b_i − b'_i‖ = o(1)", model, left, real(0))


# Step 4: |b_j - b'_j| <= Σ_w α_jw |y_w - y'_w| forgets that the weights change.
#
# Two keys in the plane, logits the product of the first coordinates. Key 1 moves by one
# unit in the first coordinate, but its second coordinate is 10, and its weight moves too.
def weight_change_findings() -> Iterator[Finding]:
    """Findings of step 4 (change of an average), by weights before and after the exchange."""
    query = (1, 0)
    before, after = [(0, 10), query], [(1, 10), query]
    weights, new_weights = _weights(query, before), _weights(query, after)
    averages = (
        [CONTEXT.fdot(used, axis) for axis in zip(*keys, strict=True)]
        for used, keys in ((weights, before), (new_weights, after))
    )
    left = CONTEXT.hypot(*(b - a for a, b in zip(*averages, strict=True)))
    distance = CONTEXT.hypot(*(b - a for a, b in zip(before[0], after[0], strict=True)))
    for when, used in (("before", weights), ("after", new_weights)):
        yield Finding(
            "4",
            "‖b_j − b'_j‖ ≤ Σ_w α_jw ‖y_w − y'_w‖",
            "d = 2, logits = product of first coordinates, y_j = (1, 0), "
            f"y_i = (0, 10) → (1, 10); α {when} the exchange",
            left,
            used[0] * distance,
        )


def _weights(query: Sequence[int], keys: Sequence[Sequence[int]]) -> list[Real]:
    powers = [CONTEXT.exp(real(query[0] * key[0])) for key in keys]
    return [p / CONTEXT.fsum(powers) for p in powers]


# Step 1: |y_j^(k)| <= 2 C_fact^L (|p_j| + |v_j|) needs more of C_fact than it says.
#
# f_act(y, b) = (y + b)/√2 is 1-Lipschitz, yet with all activations equal every layer
# multiplies them by √2: C_fact must count the concatenation of the heads.
def activation_norm_findings() -> Iterator[Finding]:
    """Finding of step 1: the printed norm bound after three layers of a 1-Lipschitz f_act."""
    activation = real(1)
    for _ in range(3):
        # All activations are equal, so every average equals them.
        activation = (activation + activation) / CONTEXT.sqrt(2)
    yield Finding(
        "1",
        "‖y_j^(k)‖ ≤ 2 C_fact^L (‖p_j‖ + ‖v_j‖)",
        "f_act(y, b) = (y + b)/√2, so C_fact = 1; H = 1, L = 3, all y = 1",
        activation,
        real(2),
    )


_STEPS = (
    activation_norm_findings,
    weight_change_findings,
    own_position_findings,
    many_heads_findings,
    tight_norm_findings,
    growth_constant_findings,
    causal_mask_findings,
)


def all_findings() -> tuple[Finding, ...]:
    """Compute every finding.

    Returns:
        The findings in the order of the printed proof.
    """
    return tuple(finding for step in _STEPS for finding in step())


def findings_table(findings: Sequence[Finding]) -> str:
    """Set findings as a table: the inequality, the model, both sides, the verdict.

    Args:
        findings: The lines, in order.

    Returns:
        A Markdown table without a final newline.
    """
    rows = [
        (
            finding.step,
            finding.printed,
            finding.model,
            f"{float(finding.left):.5g}",
            f"{float(finding.right):.5g}" if finding.right else "→ 0",
            f"{finding.ratio:.5g}" if finding.right else "",
            "holds" if finding.holds else "**false**",
        )
        for finding in findings
    ]
    header = ("step", "printed", "model", "left", "right", "left/right", "verdict")
    return markdown_table(header, rows)


def harmonic_table() -> str:
    """Set n times the influence of symbol 1 on the last row of causal averages as a table.

    Returns:
        A Markdown table without a final newline, one line per length.
    """
    header = ("n", *(f"L = {depth}" for depth in DEPTHS))
    influence = scaled_causal_average_influence
    rows = [[f"{n}", *(f"{influence(n, k):.5g}" for k in DEPTHS)] for n in LENGTHS]
    return markdown_table(header, rows)

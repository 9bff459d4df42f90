"""The false steps of the printed proof, each a model on which both sides are numbers.

Step 1: |y_j^(k)| <= 2 C_fact^L (|p_j| + |v_j|) needs more of C_fact than it says.

f_act(y, b) = (y + b)/√2 is 1-Lipschitz, yet with all activations equal every layer
multiplies them by √2: C_fact must count the concatenation of the heads.

Step 4: |b_j - b'_j| <= Σ_w α_jw |y_w - y'_w| forgets that the weights change.

Two keys in the plane, logits the product of the first coordinates. Key 1 moves by one
unit in the first coordinate, but its second coordinate is 10, and its weight moves too.

Step 7: at j = i the change of an average is not o(1): the query itself moves.

Half of the other keys are +1, half -1, logits y_i y_w, and y_i goes from 0 to 1. The
average goes from 0 to tanh 1, however long the input.

The conclusion for j != i with F the true norm bound: false for large A.

One dimension, L = H = 1, y_i = y_j = 1, the other n - 2 keys -1, logits A y_j y_w, and
f_act = L_f (b - b_0) clipped to [-1, 1], L_f = 1 + e^{2A}, b_0 the average before. y_i
moves by a tiny D. Once n is far above e^{2A} the average moves by about e^{2A}(1 + 2A)
D/n, and the ratio of the two sides tends to (1 + 2A)/(16 (1 + e^{-2A})). With the
literal F = 2 the printed A is four times as large and the claim is true, as it always
is (closed form C2).

Lemma 5 is not true of every row of masked attention.

Uniform causal averaging, values the activations, no skip. Row 2 gives symbol 1 the
weight 1/2 at every length, so no constant C makes C/n a bound. At the last row, n times
the influence of symbol 1 grows like (ln n)^{L-1}/(L-1)!: harmonic numbers.
"""

from collections.abc import Sequence

from bounds.audit.finding import CONTEXT, Finding, Group, Real, average, real
from bounds.closed_form import (
    DotProduct,
    printed,
    printed_tight,
    scaled_causal_average_influence,
)

LENGTHS = (64, 256, 1024, 4096)
DEPTHS = (1, 2, 3)
_CASES = ((6, 12, True), (8, 10, True), (8, 12, True), (10, 10, True), (10, 12, True))
OWN_LENGTHS = (11, 101, 1001, 10001)


def causal_mask_findings() -> tuple[Finding, ...]:
    """The printed bound, taken at row 2 of a causal average, for growing n."""
    constants = printed_tight(
        scores=[DotProduct(0.0)], norm=1.0, output_lipschitz=1.0, num_heads=1
    )
    return tuple(
        Finding(
            step="lemma",
            printed="‖y_j^(k) − y'_j^(k)‖ ≤ H^k C^{2k} D/n",
            model=f"uniform causal averaging, i = 1, j = 2, D = 1, A = 0; n = {n}",
            left=real(1) / 2,
            right=real(constants.others(1, n, 1.0).value),
        )
        for n in LENGTHS
    )


def harmonic_rows() -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Per length, n times the influence of symbol 1 on row n for each depth."""
    return tuple(
        (n, tuple(scaled_causal_average_influence(n, depth) for depth in DEPTHS))
        for n in LENGTHS
    )


def tight_norm_findings() -> tuple[Finding, ...]:
    """The conclusion at several A and n, read with the tight and the literal F."""
    return tuple(_finding(*case) for case in (*_CASES, (10, 12, False)))


def _finding(a: int, log10_length: int, tight: bool) -> Finding:
    length, distance = 10**log10_length, real("1e-20")
    slope = 1 + CONTEXT.exp(2 * real(a))
    others = [Group(real(1), 1), Group(real(-1), length - 2)]
    before = average(real(a), [Group(real(1), 1), *others])
    after = average(real(a), [Group(1 - distance, 1), *others])
    change = slope * abs(after - before)
    if change > 1:
        raise ArithmeticError(f"the output {change} leaves the clip at 1")
    scores, lipschitz = [DotProduct(float(a))], float(slope)
    if tight:
        constants = printed_tight(
            scores=scores, norm=1.0, output_lipschitz=lipschitz, num_heads=1
        )
    else:
        constants = printed(
            scores=scores,
            embedding_norm=1.0,
            growth=1.0,
            output_lipschitz=lipschitz,
            num_heads=1,
            num_layers=1,
        )
    return Finding(
        step="9",
        printed="‖y_j^(k) − y'_j^(k)‖ ≤ H^k C^{2k} D/n",
        model="y_i = y_j = 1, the others −1, logits A y_j y_w, f_act of slope "
        f"1 + e^{{2A}}; A = {a}, n = 10^{log10_length}; "
        f"{'tight F = 1' if tight else 'literal F = 2'}",
        left=change,
        right=real(constants.others(1, length, 1.0).value) * distance,
    )


def own_position_findings() -> tuple[Finding, ...]:
    """The change of the average at i, for growing lengths."""
    return tuple(
        Finding(
            step="7",
            printed="‖b_i − b'_i‖ = o(1)",
            model="half of the other keys +1, half −1, logits y_i y_w, y_i = 0 → 1; "
            f"n = {n}",
            left=_average_at(1, n) - _average_at(0, n),
            right=real(0),
        )
        for n in OWN_LENGTHS
    )


def _average_at(own: int, length: int) -> Real:
    half = (length - 1) // 2
    keys = [Group(real(1), half), Group(real(-1), half), Group(real(own), 1)]
    return average(real(own), keys)


def weight_change_findings() -> tuple[Finding, ...]:
    """The step, read with the weights before the exchange and with those after it."""
    query = (1, 0)
    before, after = [(0, 10), query], [(1, 10), query]
    weights, new_weights = _weights(query, before), _weights(query, after)
    change = [
        b - a
        for a, b in zip(
            _average(weights, before), _average(new_weights, after), strict=True
        )
    ]
    left = CONTEXT.hypot(*change)
    distance = CONTEXT.hypot(*(b - a for a, b in zip(before[0], after[0], strict=True)))
    return tuple(
        Finding(
            step="4",
            printed="‖b_j − b'_j‖ ≤ Σ_w α_jw ‖y_w − y'_w‖",
            model="d = 2, logits = product of first coordinates, y_j = (1, 0), "
            f"y_i = (0, 10) → (1, 10); α {when} the exchange",
            left=left,
            right=used[0] * distance,
        )
        for when, used in (("before", weights), ("after", new_weights))
    )


def _weights(query: Sequence[int], keys: Sequence[Sequence[int]]) -> list[Real]:
    powers = [CONTEXT.exp(real(query[0] * key[0])) for key in keys]
    return [p / CONTEXT.fsum(powers) for p in powers]


def _average(weights: Sequence[Real], keys: Sequence[Sequence[int]]) -> list[Real]:
    return [
        CONTEXT.fsum(w * key[c] for w, key in zip(weights, keys, strict=True))
        for c in range(2)
    ]


def activation_norm_findings() -> tuple[Finding, ...]:
    """The printed norm bound after three layers of a 1-Lipschitz f_act."""
    layers = 3
    activation = real(1)
    for _ in range(layers):
        # All activations are equal, so every average equals them.
        activation = (activation + activation) / CONTEXT.sqrt(2)
    return (
        Finding(
            step="1",
            printed="‖y_j^(k)‖ ≤ 2 C_fact^L (‖p_j‖ + ‖v_j‖)",
            model="f_act(y, b) = (y + b)/√2, so C_fact = 1; H = 1, L = 3, all y = 1",
            left=activation,
            right=2 * real(1) ** layers,
        ),
    )

"""The conclusion for j != i with F the true norm bound: false for large A.

One dimension, L = H = 1, y_i = y_j = 1, the other n - 2 keys -1, logits A y_j y_w, and
f_act = L_f (b - b_0) clipped to [-1, 1], L_f = 1 + e^{2A}, b_0 the average before. y_i
moves by a tiny D. Once n is far above e^{2A} the average moves by about e^{2A}(1 + 2A)
D/n, and the ratio of the two sides tends to (1 + 2A)/(16 (1 + e^{-2A})). With the
literal F = 2 the printed A is four times as large and the claim is true, as it always
is (closed form C2).
"""

from bounds.audit.finding import CONTEXT, Finding, real
from bounds.audit.lumped import Group, average
from bounds.closed_form import DotProduct, printed, printed_tight

_CASES = ((6, 12, True), (8, 10, True), (8, 12, True), (10, 10, True), (10, 12, True))


def findings() -> tuple[Finding, ...]:
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

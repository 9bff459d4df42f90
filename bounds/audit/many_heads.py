"""Step 8: |y_i^(k) - y'_i^(k)| <= C^{2k} D lacks the factor H^k.

One dimension, H equal heads, half of the other keys +1, half -1, logits mu y_i y_w,
f_act = L_f Σ_h b_h clipped to [-1, 1], y_i = 0 -> D. Every average moves by about mu D,
so y_i by H L_f mu D, while the right side does not know H.

With L_f = 1 + e^{2A} the right side is 16 (1 + e^{2A})² D, so in the limit of large n
and small D the claim fails from H = 16 (1 + e^{2A})/mu on. With norms at most 1 the
literal F = 2 gives A = 4 mu and the tight F = 1 gives A = mu; at the best mu, where
2A = 1 + W(1/e), the thresholds are 128 e^{2A} = 459.7 and 32 e^{2A} = 114.9.

The arithmetic before it, with the o(1) replaced by the bound of the step for j != i,
needs n >= H^k/(2 - 1/C).
"""

from bounds.audit.finding import CONTEXT, Finding, Group, Real, average, real
from bounds.closed_form import DotProduct, PrintedConstants, printed, printed_tight

_PRINTED = "‖y_i^(k) − y'_i^(k)‖ ≤ C^{2k} D"


def findings() -> tuple[Finding, ...]:
    """The claim at H = 1200, at the smallest H, and the arithmetic step at n = 2."""
    # The slope is 1 + e^{2A} of the literal reading, A = 4 mu.
    mu, slope = 0.12, 1 + CONTEXT.exp(8 * real(0.12))
    left = _change(1200, mu, slope, 10001, real("1e-3"))
    many = [
        _finding(f"H = 1200, mu = 0.12, n = 10001, D = 1e-3; {name}", left, constants)
        for name, constants in _readings(mu, slope).items()
    ]
    return (*many, *_smallest(), _arithmetic(mu, slope))


def _finding(model: str, left: Real, constants: PrintedConstants) -> Finding:
    distance = real("1e-3")
    right = real(constants.own(1, 1.0).value) * distance
    return Finding("8", _PRINTED, model, left, right)


def _smallest() -> tuple[Finding, ...]:
    """The smallest H that violates the claim in this family, and the one below it."""
    distance, length = real("1e-9"), 10**9 + 1
    # e^x (x - 1) = 1 at x = 2A is where 16 (1 + e^{2A})/mu is least.
    exponent = 1 + CONTEXT.lambertw(CONTEXT.exp(-1)).real
    found = []
    for name, ratio in (("literal F = 2", 4), ("tight F = 1", 1)):
        mu = float(exponent / (2 * ratio))
        slope = 1 + CONTEXT.exp(2 * ratio * real(mu))
        constants = _readings(mu, slope)[name]
        right = real(constants.own(1, 1.0).value) * distance
        per_head = _change(1, mu, slope, length, distance)
        heads = int(CONTEXT.ceil(right / per_head))
        found += [
            Finding(
                "8",
                _PRINTED,
                f"H = {h}, mu = {mu:.4f}, n = 10^9 + 1, D = 1e-9; {name}",
                h * per_head,
                right,
            )
            for h in (heads, heads - 1)
        ]
    return tuple(found)


def _arithmetic(mu: float, slope: Real) -> Finding:
    constant = real(_readings(mu, slope)["literal F = 2"].constant.b)
    heads, length = 1200, 2
    return Finding(
        step="8",
        printed="L_f (C^{2k−2} D + H^k C^{2k−1} D/n) ≤ C^{2k} D",
        model=f"the same constants, k = 1, H = {heads}, n = {length}, D = 1; sure "
        f"from n = {int(CONTEXT.ceil(heads / (2 - 1 / constant)))} on",
        left=slope * (1 + heads * constant / length),
        right=constant**2,
    )


def _readings(mu: float, slope: Real) -> dict[str, PrintedConstants]:
    # The number of heads does not enter the claim about position i.
    scores, lipschitz = [DotProduct(mu)], float(slope)
    return {
        "literal F = 2": printed(
            scores=scores,
            embedding_norm=1.0,
            growth=1.0,
            output_lipschitz=lipschitz,
            num_heads=1,
            num_layers=1,
        ),
        "tight F = 1": printed_tight(
            scores=scores, norm=1.0, output_lipschitz=lipschitz, num_heads=1
        ),
    }


def _change(heads: int, mu: float, slope: Real, length: int, distance: Real) -> Real:
    """The exact change of y_i, which stays inside the clip."""
    half = (length - 1) // 2
    keys = [Group(real(1), half), Group(real(-1), half), Group(distance, 1)]
    change = heads * slope * average(real(mu) * distance, keys)
    # At y_i = 0 the logits are zero and the keys cancel: the average is 0.
    if change > 1:
        raise ArithmeticError(f"the output {change} leaves the clip at 1")
    return change

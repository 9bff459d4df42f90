"""The conclusion for j != i when C_fact is read too small: false at moderate n.

Both models have u_i = u_j = +1 and all other u_w = -1.

*Biases ignored.* L = 2, y^(0) = ε u with ε = 1e-12, layer 1 f_act = y + S with the bias
S = A/ε, layer 2 f_act = b; logits y_j y_w. The homogeneous part has growth 1, so the
printed F is 2ε and the printed A nothing; but the logits of layer 2 are A u_w.

*C_fact below 1.* L = 1, f_act = 0.01 b, logits 4 y_j y_w, y^(0) = u: the printed
F = 0.02 does not even bound the embeddings.
"""

from collections.abc import Callable

from bounds.audit.finding import Finding, Group, Real, average, real
from bounds.closed_form import DotProduct, PrintedConstants, printed, printed_tight

_STEP = real("1e-8")


def findings() -> tuple[Finding, ...]:
    """The conclusion in both misreadings."""
    biased = tuple(_biased(a, n) for a, n in ((3, 2000), (4, 2000), (4, 100000)))
    return (*biased, _shrinking(4, 10000))


def _biased(a: int, length: int) -> Finding:
    small = real("1e-12")
    shift = a / small

    def output(moved: Real) -> Real:
        # Layer 1 adds the bias to every activation; the query j is a key too.
        query, rest = small + shift, shift - small
        keys = [Group(small * moved + shift, 1), Group(query, 1)]
        return average(query, [*keys, Group(rest, length - 2)])

    constants = printed(
        scores=[DotProduct(1.0)],
        embedding_norm=float(small),
        growth=1.0,
        output_lipschitz=1.0,
        num_heads=1,
        num_layers=2,
    )
    model = (
        "L = 2, y^(0) = ε u, ε = 1e-12, layer 1 adds a bias A/ε that C_fact = 1 leaves "
        f"out; A = {a}, n = {length}"
    )
    return _finding(model, output, constants, 2, length, small * _STEP)


def _shrinking(a: int, length: int) -> Finding:
    factor = 0.01

    def output(moved: Real) -> Real:
        keys = [Group(moved, 1), Group(real(1), 1), Group(real(-1), length - 2)]
        return real(factor) * average(real(a), keys)

    # `printed` refuses a growth below 1; its F would be 2 C_fact.
    constants = printed_tight(
        scores=[DotProduct(float(a))],
        norm=2 * factor,
        output_lipschitz=factor,
        num_heads=1,
    )
    model = f"L = 1, f_act = 0.01 b, C_fact = 0.01, F = 0.02; A = {a}, n = {length}"
    return _finding(model, output, constants, 1, length, _STEP)


def _finding(
    model: str,
    output: Callable[[Real], Real],
    constants: PrintedConstants,
    layer: int,
    length: int,
    distance: Real,
) -> Finding:
    return Finding(
        step="9",
        printed="‖y_j^(k) − y'_j^(k)‖ ≤ H^k C^{2k} D/n",
        model=model,
        left=abs(output(1 - _STEP) - output(real(1))),
        right=real(constants.others(layer, length, 1.0).value) * distance,
    )

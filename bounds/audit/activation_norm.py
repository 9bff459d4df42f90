"""Step 1: |y_j^(k)| <= 2 C_fact^L (|p_j| + |v_j|) needs more of C_fact than it says.

f_act(y, b) = (y + b)/√2 is 1-Lipschitz, yet with all activations equal every layer
multiplies them by √2: C_fact must count the concatenation of the heads.
"""

from bounds.audit.finding import CONTEXT, Finding, real


def findings() -> tuple[Finding, ...]:
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

"""Temperature: it divides the logits, and with them mu, c, m1, m2 and A, nothing else.

`LayerConstants.at_temperature` does that. A fixed temperature only changes the
constants of Lemma 5. One that falls with the length changes the conclusion: with 1/τ =
β ln n and A the half oscillation at τ = 1, the largest weight grows like e^{2Aβ ln
n}/n, and C1 is n^{2Aβ - 1} times a polynomial in ln n. It vanishes if and only if 2Aβ <
1: attention with length-scaled logits escapes the lemma, as it should.
"""

from bounds.closed_form.domain import nonnegative
from bounds.interval import interval, upper


def length_exponent(half_oscillation: float, log_scale: float) -> float:
    """Compute the exponent of n in C1 when 1/τ = β ln n.

    2 A β - 1, up to factors polynomial in ln n; below zero the bound vanishes.

    Args:
        half_oscillation: A at temperature 1, nats.
        log_scale: β >= 0; the temperature is 1/(β ln n).

    Returns:
        The exponent, rounded up.

    Raises:
        ValueError: A number is negative or NaN.

    Source:
        Hahn 2020, Lemma 5, corrected: closed form C1.

    >>> length_exponent(0.25, 1.0)
    -0.5
    """
    a = interval(nonnegative("half_oscillation", half_oscillation))
    return upper(2 * a * interval(nonnegative("log_scale", log_scale)) - 1)

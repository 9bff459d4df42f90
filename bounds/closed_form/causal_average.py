"""Uniform causal averaging: the model that shows why 1/n becomes (log n)^{L-1}/n.

Every row averages the activations of the rows up to its own, a_j = (1/j) Σ_{w<=j} y_w,
L layers deep, without a skip. n times the influence of symbol 1 on row n is exactly the
complete homogeneous symmetric polynomial of degree L - 1,

    h_{L-1}(1, 1/2, …, 1/n),

so 1, then the harmonic number H_n, then (H_n² + H_n^(2))/2, in general of order
(ln n)^{L-1}/(L-1)!. Proof: r^(1)_w = 1/w, and if w r^(k)_w = h_{k-1}(1, …, 1/w) then
j r^(k+1)_j = Σ_{w<=j} (1/w) h_{k-1}(1, …, 1/w) = h_k(1, …, 1/j), sorting the monomials
by the last variable in them.
"""

from typing import Any

from mpmath import MPContext

from bounds.closed_form.domain import whole


def scaled_causal_average_influence(length: int, num_layers: int) -> float:
    """Compute n times the influence of symbol 1 on row n, averaging uniformly.

    Exact: the float nearest to h_{L-1}(1, 1/2, …, 1/n), summed with 50 digits.

    Args:
        length: n >= 1.
        num_layers: L >= 1.

    Returns:
        The scaled influence.

    Raises:
        ValueError: A number is out of its range.

    Source:
        A counterexample to Hahn 2020, Lemma 5, read for masked attention.

    >>> round(scaled_causal_average_influence(64, 2), 4)
    4.7439
    """
    n = whole("length", length, 1)
    context: Any = MPContext()
    context.dps = 50
    # degrees[k] = h_k of the reciprocals so far; each new variable x enters as
    # h_k += x h_{k-1}, in rising order of k.
    degrees = [context.mpf(1)] + [context.mpf(0)] * (
        whole("num_layers", num_layers, 1) - 1
    )
    for w in range(1, n + 1):
        for k in range(1, len(degrees)):
            degrees[k] += degrees[k - 1] / w
    return float(degrees[-1])

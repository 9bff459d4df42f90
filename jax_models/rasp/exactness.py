"""Up to which length floats compute a compiled program exactly.

All numbers of a compiled program are integers but for 1/i and the means of Booleans. A
sum of integers whose magnitudes add up to at most 2^p, p the bits of a float, is exact
in any order, and so is a product below 2^p. The means and 1/i enter one kind of score,
which floats miss by less than a quarter of its gap up to a length that `_mean_limit`
gives. So the same keys are attended to as in real arithmetic, and what they bring back
are integers again: nothing that is rounded goes further.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from jax_models.errors import InputError
from jax_models.float_type import check_float_type
from jax_models.rasp.affine import Affine
from jax_models.rasp.plan import (
    BooleanValue,
    IntegerValue,
    Plan,
    PlannedHead,
    SymbolValue,
    evaluate,
)

# A power of two, so that the cell of an integer score is an integer: four cells apart.
TIE_RESOLUTION = 0.25

# Positions are 32-bit integers in the engine; the search for the longest ends there.
_LONGEST = 2**31 - 1


def longest_exact_length(plan: Plan, dtype: Any) -> int:
    """Returns the largest n up to which floats are proved to run a program exactly.

    For every n up to it and every input, hard attention in `dtype` attends to the keys
    of real arithmetic, no row is reported as ambiguous, and the result is exact.

    Args:
        plan: the compiled program.
        dtype: float32 or float64.

    Returns:
        n; 0 if not even one symbol is sure.

    Source:
        docs/rasp.md, section 7.
    """
    finfo = jnp.finfo(dtype)
    bits = finfo.nmant + 1
    exact = functools.partial(_is_exact, plan, bits)
    # All bounds grow with n: the lengths in question are an initial segment.
    low, high = 0, _LONGEST
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if exact(middle) else (low, middle - 1)
    return low


def check_length(plan: Plan, length: int, dtype: Any) -> None:
    """Raises unless floats are proved to run a program at a length.

    Args:
        plan: the compiled program.
        length: n.
        dtype: float32 or float64.

    Raises:
        InputError: beyond the longest length.
    """
    check_float_type(dtype, "the model asked for")
    longest = longest_exact_length(plan, dtype)
    if length > longest:
        name = jnp.dtype(dtype).name
        remedy = (
            "use float64 or a shorter input"
            if jnp.finfo(dtype).bits < 64
            else "use a shorter input"
        )
        raise InputError(
            f"this program is proved exact in {name} up to n = {longest}, asked for is "
            f"n = {length}; {remedy}"
        )


def _is_exact(plan: Plan, bits: int, length: int) -> bool:
    sizes = [evaluate(bound, length) for bound in plan.bounds]

    def size(form: Affine) -> int:
        terms = (abs(a) * sizes[c] for c, a in form.terms)
        return sum(terms, start=abs(form.constant))

    most = 2**bits
    heads = [head for layer in plan.layers for head in layer.heads]
    means = {c for head in heads if head.uniform for c in head.write}
    if means and length**2 > _mean_limit(bits):
        return False
    key_width = max((len(head.key) for head in heads), default=1)
    # The roundings that the engine counts in a score: `Attention.__post_init__`.
    steps = 2 * (plan.width + 1) + key_width + 2
    for head in heads:
        score = _score_size(head, size)
        if not _resolves(score, steps, bits):
            return False
        if any(size(form) > most for form in (*head.query, *head.key)):
            return False
        # A uniform head adds up to n values before it divides.
        keys = length if head.uniform else 1
        if any(keys * size(form) > most for form in head.value):
            return False
    written: dict[int, int] = {}
    for layer in plan.layers:
        for neuron in layer.neurons:
            part = abs(neuron.coefficient) * size(neuron.read)
            written[neuron.write] = written.get(neuron.write, 0) + part
            if size(neuron.read) > most or written[neuron.write] > most:
                return False
    match plan.result:
        case SymbolValue(forms=forms):
            results = forms
        case BooleanValue(form=form) | IntegerValue(form=form):
            results = (form,)
    return all(one <= most for one in (*sizes, *map(size, results)))


def _score_size(head: PlannedHead, size: Callable[[Affine], int]) -> int:
    pairs = zip(head.query, head.key, strict=True)
    return sum(size(query) * size(key) for query, key in pairs)


def _resolves(score: int, steps: int, bits: int) -> bool:
    """Whether k u |score| is below a cell, so that the engine trusts what it sees.

    With k >= 4 the score is then below 2^p too: an integer score is exact.
    """
    return steps * score < TIE_RESOLUTION * 2**bits


def _mean_limit(bits: int) -> float:
    """Returns the n^2 up to which a score from a mean is less than 1/4 off.

    With the unit u = 2^-p, to first order: 1/i is off by u/i; C/i by u; the neuron for
    b/i by 2u beside that, and S, their difference, by 5u in all. The score
    n (2 S j - j^2/i) with j < i takes 5u 2 n j from S, u n j^2/i from 1/i, and three
    roundings, of two products and a sum, of 2 n j + n j^2/i <= 3 n j at most: 20 u n^2.
    Twice that stands for terms of higher order.
    """
    return 2**bits / (4 * 40)

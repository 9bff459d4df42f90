"""Formulas as transformers, and the length up to which rounding flips no truth value.

A head that is not uniform has one right position: a selection (select) the last or first of
the best scores, a lookup the position equal to a count C of positions. The score of the
k-th other position on each side, k = 1, 2, ..., is lower by a deficit, over the
temperature, of at least g (k (1 - tilt) - loss), or k² for k; tilt and loss are due to
rounding, g is `SHARPNESS`, and γ its larger value where counts with factors λ are looked
up. T, TB, U, FT and FU are the modes of compiling. With u the unit roundoff and c = (2 ln n
+ 20) u the relative error of a uniform head (equal weights, sums of integers), which is
also above that of a coordinate of the position encoding,

    select  (T, TB, U, FU)    deficits ≥ g (k - 16 n u)
    select  (FT)              g (k (1 - 2 n c) - 8 n² u)
    lookup                    γ (k² (1 - 6 n c - 7 u (4n + 1)) - 42 n² u)
    lookup, cubic (FU)        g (k² (1 - 9 n c - 8 u (12n + 11)) - 80 n² u)

(docs/logic.md, section 7; Lemma 7 is of docs/theory/softmax-approximation.md). λ_0 and λ
are integers, a vote compares Σ λ C + λ_0 with 1 at position i. Sums of n values round by (n
+ 16) u more. A truth value cannot flip while every approximate Boolean is within 1/4.
"""

import bisect
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from jax_models.arguments import check_alphabet, expect_kind
from jax_models.errors import InputError
from jax_models.format.model_check import check_model
from jax_models.model.attention import Attention
from jax_models.model.position import Coordinates, PowerTerm
from jax_models.model.readout import Accept, Readout
from jax_models.model.transformer import Transformer
from jax_models.programs.circuit import build_circuit
from jax_models.programs.logic.modes import (
    SHARPNESS,
    get_mode,
    require_expressible,
)
from jax_models.programs.logic.syntax import Formula
from jax_models.programs.logic.translate import plan_formula
from jax_models.run.evaluate import apply_logits, check_tokens
from jax_models.weighting import Softmax

Holds = Callable[[int], bool]
"""Whether a head's result is near enough at a length."""


def exact_length(model: Transformer) -> int:
    """Returns a length up to which rounding cannot flip a truth value of a model.

    At any length up to it, on any string, every coordinate of a sub-formula is within
    rounding of the right Boolean, in the model's float type. The length is certified
    from the weights; it is not the largest (wrong values first appear at some three
    times it or more).

    Args:
        model: made by `compile_formula`, or such a model saved and loaded.

    Returns:
        The length; 0 if an integer of the formula is too large for the float type.

    Raises:
        InputError: for a model that is not compiled from a formula.

    Source: docs/logic.md, section 7.
    """
    require_compiled(model)
    # From the weights, so that a loaded model has it too: a file has no place for it.
    roundoff = float(jnp.finfo(model.dtype).eps) / 2
    conditions = [
        _condition(model, layer.attention, head, roundoff)
        for layer in model.layers
        for head in range(layer.attention.num_heads)
    ]
    fails = lambda n: not all(holds(n) for holds in conditions)
    # Sums of integers are exact far beyond this.
    lengths = range(1, math.ceil(0.01 / roundoff) + 1)
    return bisect.bisect_left(lengths, True, key=fails)


def require_compiled(model: Transformer) -> None:
    """Raises `InputError` unless attention is softmax and one logit >= 1/2 accepts."""
    model = check_model(model)
    weightings = {layer.attention.weighting.name for layer in model.layers}
    readout = model.readout
    weight = np.asarray(readout.weight) if isinstance(readout, Readout) else None
    reads_one = weight is not None and len(weight) == weight.sum() == weight.max() == 1
    if model.accept != Accept(0, 0.5) or weightings != {Softmax.name} or not reads_one:
        raise InputError(
            "the model is not compiled from a formula, which has softmax attention and "
            "accepts where one coordinate is at least 1/2; make it by compile_formula"
        )


def require_exact(model: Transformer, length: int) -> None:
    """Raises `InputError` if rounding could flip a truth value of a model at a length."""
    longest = exact_length(model)
    if length <= longest:
        return
    or_float64 = "" if model.dtype == jnp.float64 else " or dtype float64"
    if not longest:
        raise InputError(
            f"an integer of the formula is too large for {model.dtype}: rounding could "
            f"flip its truth at every length; use smaller integers{or_float64}"
        )
    raise InputError(
        f"at length n = {length} rounding could flip a truth value of this "
        f"{model.dtype} model, which is exact up to n = {longest}; use shorter strings"
        f"{or_float64}"
    )


def _condition(model: Transformer, attention: Attention, head: int, u: float) -> Holds:
    """Returns the test of a length n that a head's rounding error is small enough."""
    query = _with_bias(attention.query, attention.query_bias, head)
    if not query.any():
        return lambda n: True
    terms = _power_terms(model)
    key = _read(attention.key_by_head, head)
    powers = [term.position_power for c in key for term in terms.get(c, ())]
    degree = max(powers, default=0)
    if degree == 3:
        return lambda n: _cubic_lookup(n, u)
    if degree == 2:
        # One head looks up both, a number and predicates, where their scores are equal.
        is_place = lambda c: any(term.position_power == 1 for term in terms.get(c, ()))
        of_number = [*map(is_place, _read(attention.value_by_head, head))]
        # In mode FU the number looked for is itself within 1/8 of an integer.
        inexact = attention.query_bias is not None and bool(query[:, -1].any())
        share = 0.25 if inexact else 0.0
        gamma = float(np.abs(query).max())
        largest = _largest_integer(model)
        return lambda n: (
            (all(of_number) or _predicate_lookup(n, u, share))
            and (not any(of_number) or _count_lookup(n, u, gamma, largest))
        )
    if key and all(any(t.alternating for t in terms.get(c, ())) for c in key):
        if degree == 0:
            # The count lookups answer for the number that is voted on.
            return lambda n: (n + 16) * u <= 0.04
        size, parts = _written(model, _read(attention.query, head))
        return lambda n: _vote(n, u, size, parts)
    if degree == 1:
        return lambda n: _selected(n, u, 0.0, 16 * n * u)
    return lambda n: _selected(n, u, 2 * n * _uniform_error(n, u), 8 * n**2 * u)


def _with_bias(weight: Any, bias: Any, head: int) -> Float[np.ndarray, "d_k read"]:
    """Query or key weights of a head [d_k, d + 1], its bias in the last column."""
    forms = np.asarray(weight, np.float64)[head]
    last = np.zeros(len(forms)) if bias is None else np.asarray(bias, np.float64)[head]
    return np.concatenate([forms, last[:, None]], axis=1)


def _read(weight: Any, head: int) -> list[int]:
    """Input coordinates with a nonzero entry in a head's weights [d_k, d]."""
    return np.flatnonzero(np.asarray(weight)[head].any(axis=0)).tolist()


def _power_terms(model: Transformer) -> dict[int, list[PowerTerm]]:
    found: dict[int, list[PowerTerm]] = {}
    if isinstance(model.position, Coordinates):
        for term in model.position.terms:
            if isinstance(term, PowerTerm):
                found.setdefault(term.coordinate, []).append(term)
    return found


def _largest_integer(model: Transformer) -> float:
    """Largest |entry| of embedding and feed-forward w1: bounds a formula's integers."""
    parts = [model.embedding, *(layer.feed_forward.w1 for layer in model.layers)]
    return max(float(np.abs(np.asarray(part)).max()) for part in parts)


def _written(model: Transformer, coordinates: list[int]) -> tuple[float, int]:
    """Sum of |entries| and nonzeros in rows `coordinates` of attention's output maps."""
    written = [np.asarray(x.attention.output)[coordinates] for x in model.layers]
    total = sum(float(np.abs(part).sum()) for part in written)
    return total, sum(int(np.count_nonzero(part)) for part in written)


def _uniform_error(n: int, u: float) -> float:
    return (2 * math.log(n) + 20) * u


def _exp(exponent: float) -> float:
    return math.exp(exponent) if exponent < 700 else math.inf


def _selected(n: int, u: float, tilt: float, loss: float) -> bool:
    """Whether weights e^{-g (k (1 - tilt) - loss)} of wrong positions err by <= 1/4."""
    if tilt >= 0.5 or loss >= 0.5:
        return False
    odds = 2 * _exp(SHARPNESS * loss) / math.expm1(SHARPNESS * (1 - tilt))
    return odds + (n + 16) * u <= 0.25


def _lookup_losses(n: int, u: float) -> tuple[float, float]:
    return 6 * n * _uniform_error(n, u) + 7 * u * (4 * n + 1), 42 * n**2 * u


def _predicate_lookup(n: int, u: float, inexact: float) -> bool:
    """Whether a looked up predicate of a position is within 1/4 of its truth."""
    tilt, loss = _lookup_losses(n, u)
    # The sharpness is g / (1 - inexact), so that g (k² - ...) is left.
    share = 1 / (1 - inexact)
    return _selected(n, u, share * tilt, share * loss)


def _found(gamma: float, tilt: float, loss: float) -> float:
    """Bound on the error of Σ j α_j, a position that weights α look up, by Lemma 7."""
    if tilt >= 0.5 or loss >= 0.5:
        return math.inf
    left = gamma * (1 - tilt)
    return _exp(gamma * loss - left) * (1 + 1 / (2 * left))


def _count_lookup(n: int, u: float, gamma: float, largest: float) -> bool:
    """Whether Σ λ C of looked up counts C errs by <= 1/4, for Σ|λ| = e^γ/64."""
    factors = max(1.0, math.exp(gamma - SHARPNESS))
    rounding = (n + 24) * (n + 1) * u
    total = factors * (_found(gamma, *_lookup_losses(n, u)) + rounding)
    offset = largest + factors
    summed = (factors + 8) * u * (factors * n + offset)
    return total + summed + _uniform_error(n, u) * (factors + offset) <= 0.25


def _cubic_lookup(n: int, u: float) -> bool:
    """Whether a cubic lookup of a count >= half the positions errs by <= 1/8."""
    tilt = 9 * n * _uniform_error(n, u) + 8 * u * (12 * n + 11)
    error = _found(SHARPNESS, tilt, 80 * n**2 * u)
    return error + (n + 24) * (n + 1) * u <= 0.125


def _vote(n: int, u: float, size: float, parts: int) -> bool:
    """Whether D/i, of `parts` terms, errs by <= 1/(4 i), and the head's sum by <= 1/20.

    The head compares D = Σ λ C + λ_0, an integer made of counts C, with 1. At odds of at
    least 4 for true and at most 1/8 for false, 1/20 is left for its sum.
    """
    error = _uniform_error(n, u) + (parts + 8) * u
    return n * error * size <= 0.25 and (n + 16) * u <= 0.04


def compile_formula(
    formula: Formula,
    alphabet: Sequence[str],
    mode: str,
    *,
    dtype: Any = jnp.float32,
) -> Transformer:
    """Returns the softmax transformer that decides a formula at every position.

    The logit of a position is 1 where the formula holds and 0 where it does not, exactly:
    every sub-formula has a coordinate of its own, which a layer rounds to a Boolean. A
    string is accepted if the formula holds at its last position.

    Args:
        formula: the formula (`jax_models.programs.logic`).
        alphabet: the symbols in the order of their ids.
        mode: what the model may use: T, TB, U, FT or FU (`jax_models.programs.logic.MODES`).
        dtype: float32 or float64.

    Returns:
        The model; `truth_values` reads it.

    Raises:
        InputError: for an unknown mode, an invalid alphabet, a formula that the mode
            cannot express (with all reasons), integers beyond the float type, or
            float64 without x64.

    Source:
        Yang, Strobl, Chiang & Angluin 2024, Theorems 12-23;
        docs/logic.md, section 6.
    """
    symbols = check_alphabet(alphabet)
    chosen = get_mode(mode)
    expect_kind("formula", formula, Formula, "one, such as parse_formula returns")
    require_expressible(formula, symbols, chosen)
    plan = plan_formula(formula, symbols, chosen)
    base = chosen.temperature or "length"
    model = build_circuit(plan, [plan.output], 0.5, Softmax(), dtype, base)
    require_exact(model, 1)
    return model


def truth_values(model: Transformer, tokens: Any) -> Bool[np.ndarray, "tokens"]:
    """Returns whether the formula of a compiled model holds at each position.

    Args:
        model: from `compile_formula`, or saved and loaded.
        tokens: integers in [0, V) [n].

    Returns:
        Booleans [n].

    Raises:
        InputError: beyond the length up to which rounding cannot flip a truth value
            (`exact_length`), for tokens that do not fit the model, or a model that is
            not compiled from a formula.
    """
    require_compiled(model)
    checked = check_tokens(model.vocab_size, tokens)
    require_exact(model, checked.shape[0])
    return np.asarray(apply_logits(model, checked)[:, 0] >= 0.5)

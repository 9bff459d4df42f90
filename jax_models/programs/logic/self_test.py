"""Tests of a compiled formula's model against `evaluate_formula`, string by string.

The truth is compared at every position, not at the last alone. The margin of a model is
its smallest distance |logit − 1/2| from the threshold: 1/2 where every Boolean of the
model is exact. The forward pass is in NumPy: there is nothing to compile, so that one model
at many lengths runs at once. Scores are held for a block of query rows at a time; some
strings also run in JAX, the engine. Shapes: b strings, n positions, h heads
of key or query width e and value width v, d model width.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from jax_models.arguments import expect_strings
from jax_models.errors import InputError
from jax_models.model.attention import Attention
from jax_models.model.layer import Layer
from jax_models.model.mask import SIGHTS
from jax_models.model.transformer import Transformer, encode_positions
from jax_models.programs.logic.semantics import evaluate_formula
from jax_models.programs.logic.syntax import Formula
from jax_models.run.device_memory import require_memory, require_operations
from jax_models.run.evaluate import apply_logits, linear_readout

Strings = Int[np.ndarray, "inputs tokens"]
Logits = Float[np.ndarray, "inputs tokens"]

MAX_SCORES = 2**22  # held at once
MOST_STRINGS = 4096  # all strings of a length are tested where there are no more
LONGEST = 100  # length that random strings reach, or a larger one that is asked for
_NUM_LONGER = 6  # lengths of random strings
_SYMBOLS_AT_ONCE = 2**16  # what is held is so many rows of the model


def apply_eagerly(
    model: Transformer, strings: ArrayLike
) -> Float[np.ndarray, "... tokens width"]:
    """Returns the final activations of strings of one length, computed by NumPy.

    The model is as compiled from a formula: softmax, ReLU, residual sums, dot-product scores
    and no layer norm.
    """
    tokens = expect_strings("strings", strings)
    if tokens.min() < 0 or tokens.max() >= model.vocab_size:
        raise InputError(
            f"strings hold tokens from {tokens.min()} to {tokens.max()}; the model has "
            f"the tokens 0 to {model.vocab_size - 1}"
        )
    batch = np.atleast_2d(tokens)
    y = np.asarray(model.embedding)[batch]
    y = y + np.asarray(encode_positions(model, batch.shape[1]))
    for layer in model.layers:
        y = _apply_layer(layer, y)
    return y.reshape(*tokens.shape, -1)


def _apply_layer(
    layer: Layer, y: Float[np.ndarray, "inputs tokens width"]
) -> Float[np.ndarray, "inputs tokens width"]:
    attention, block = layer.attention, layer.feed_forward
    c = y + _linear(_heads(attention, y), attention.output, attention.output_bias)
    hidden = np.maximum(_linear(c, block.w1, block.b1), 0)
    return c + _linear(hidden, block.w2, block.b2)


def _linear(
    rows: Float[np.ndarray, "inputs tokens read"], weight: Any, bias: Any
) -> Float[np.ndarray, "inputs tokens out"]:
    product = rows @ np.asarray(weight).T
    return product if bias is None else product + np.asarray(bias)


def _heads(
    attention: Attention, y: Float[np.ndarray, "inputs tokens width"]
) -> Float[np.ndarray, "inputs tokens concatenated"]:
    """Attended values of the heads, side by side [b, n, h v]."""
    strings, length, _ = y.shape

    def projected(
        weight: Any, bias: Any
    ) -> Float[np.ndarray, "inputs heads tokens out"]:
        """Queries, keys or values of every head [b, h, n, e or v]."""
        product = np.einsum("hed,bnd->bhne", np.asarray(weight), y, optimize=True)
        return product if bias is None else product + np.asarray(bias)[:, None, :]

    query = projected(attention.query, attention.query_bias)
    key = projected(attention.key_by_head, attention.key_bias_by_head)
    value = projected(attention.value_by_head, attention.value_bias_by_head)
    if attention.temperature is not None:
        tau = attention.temperature(length, jnp.arange(length), query.dtype)
        query = query / np.asarray(tau).reshape(-1, 1)
    block = max(1, MAX_SCORES // (strings * attention.num_heads * length))
    parts = [
        _attend(attention.mask, query[:, :, start : start + block], key, value, start)
        for start in range(0, length, block)
    ]
    heads = np.concatenate(parts, axis=2)
    return heads.transpose(0, 2, 1, 3).reshape(strings, length, -1)


def _attend(
    mask: str,
    query: Float[np.ndarray, "inputs heads rows d_k"],
    key: Float[np.ndarray, "inputs heads keys d_k"],
    value: Float[np.ndarray, "inputs heads keys d_v"],
    start: int,
) -> Float[np.ndarray, "inputs heads rows d_v"]:
    """Attended values of a block of query rows; 0 in a row that sees no column."""
    i = start + np.arange(query.shape[2])[:, None]
    j = np.arange(key.shape[2])[None, :]
    seen = np.asarray(SIGHTS[mask].visible(i, j))
    scores = np.where(seen, query @ key.swapaxes(-1, -2), -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(axis=-1, keepdims=True)
    return (weights @ value) / np.where(total > 0, total, 1)


@dataclasses.dataclass(frozen=True)
class Margin:
    """Smallest distance |logit - 1/2| found, with its string and position."""

    value: float
    string: tuple[int, ...]  # symbol ids
    position: int  # from 0


def require_testable(model: Transformer, longest: int) -> None:
    """Raises `InputError` if a test up to length `longest` takes too much memory or time."""
    width = model.width + max(len(x.feed_forward.w1) for x in model.layers)
    what = f"a self-test of length n = {longest}"
    require_memory(what, 8 * width * longest)
    require_operations(what, 2 * len(model.layers) * longest**2)


def strings_to_test(
    num_symbols: int,
    # all strings up to this length, as far as a length has no more than `MOST_STRINGS`
    longest: int,
    seed: int,
    # longest length at all, the model's `exact_length`
    most: int,
) -> Iterator[tuple[Int[np.ndarray, "_ _"], bool]]:
    """Yields strings by length, shortest first, and whether they are all of a length.

    Longer lengths, up to `longest` or `LONGEST`, have random strings: each has its own
    frequencies of the symbols, so that there are long runs of one symbol.
    """
    all_of = 0
    while all_of < min(longest, most) and num_symbols ** (all_of + 1) <= MOST_STRINGS:
        all_of += 1
        every = itertools.product(range(num_symbols), repeat=all_of)
        yield np.array(list(every), np.int32), True
    if all_of >= most:
        return
    rng = np.random.default_rng(seed)
    end = min(max(longest, LONGEST, all_of + 1), most)
    spaced = np.geomspace(all_of + 1, end, _NUM_LONGER)
    for length in sorted({round(n) for n in spaced.tolist()}):
        count = 8 if length <= LONGEST else 1
        shares = rng.dirichlet(np.full(num_symbols, 0.5), count)
        rows = [rng.choice(num_symbols, length, p=share) for share in shares]
        yield np.array(rows, np.int32), False


def eager_logits(model: Transformer, strings: Strings) -> Logits:
    """Returns the logit of a compiled formula at every position, computed by NumPy."""
    readout = linear_readout(model)
    at_once = max(1, _SYMBOLS_AT_ONCE // strings.shape[1])
    activations = (
        apply_eagerly(model, strings[start : start + at_once])
        for start in range(0, len(strings), at_once)
    )
    parts = [_linear(y, readout.weight, readout.bias)[..., 0] for y in activations]
    return np.concatenate(parts)


def engine_logits(model: Transformer, strings: Strings) -> Logits:
    """Returns the logit of a compiled formula at every position, computed by JAX."""
    return np.array([np.asarray(apply_logits(model, row))[:, 0] for row in strings])


def check_strings_of_model(
    model: Transformer,
    formula: Formula,
    alphabet: Sequence[str],
    strings: Strings,
    logits_of: Callable[[Transformer, np.ndarray], np.ndarray] = eager_logits,
) -> Margin:
    """Checks a model against `evaluate_formula` at every position; returns the margin.

    An `InputError` names the first position where the two differ.
    """
    logits = logits_of(model, strings)
    expected = evaluate_formula(formula, strings, alphabet)
    # A NaN is on neither side: it must not pass for false.
    agrees = np.where(expected, logits >= 0.5, logits < 0.5)
    wrong = np.argwhere(~agrees)
    if wrong.size:
        row, i = (int(index) for index in wrong[0])
        raise InputError(
            f"the compiled model errs: at position {i} of "
            f"{spell(strings[row], alphabet)} its logit is {logits[row, i]:.6g}, but the "
            f"formula is {'true' if expected[row, i] else 'false'} there "
            f"({len(wrong)} positions of {strings.size} differ); compile it with "
            f"--dtype=float64 if it is in float32, and report it otherwise"
        )
    distance = np.abs(logits - 0.5)
    row, i = np.unravel_index(distance.argmin(), distance.shape)
    return Margin(float(distance[row, i]), tuple(strings[row].tolist()), int(i))


def run_self_test(
    model: Transformer,
    formula: Formula,
    alphabet: tuple[str, ...],
    groups: Sequence[tuple[Int[np.ndarray, "_ _"], bool]],
    progress: Callable[[int, int, int], None] = lambda done, total, length: None,
) -> dict[str, Any]:
    """Tests a model on groups of strings; returns counts of the test and the margin.

    A group is some strings of one length, and whether that length has no others. Raises
    `InputError` where the model and its formula differ.
    """
    complete = [strings for strings, is_all in groups if is_all]
    # NumPy takes the bulk. What is run is the engine: it takes the last strings of the
    # longest complete length, whose pass compiles once, and one of the longest.
    engine = [groups[-1][0][:1]]
    if complete:
        engine.insert(0, complete[-1][-8:])
    rounds = [(strings, eager_logits) for strings, _ in groups]
    rounds += [(strings, engine_logits) for strings in engine]
    margins: list[Margin] = []
    for strings, logits_of in rounds:
        given = model, formula, alphabet, strings
        margins.append(check_strings_of_model(*given, logits_of))
        progress(len(margins), len(rounds), strings.shape[1])
    least = min(margins, key=lambda margin: margin.value)
    return {
        **count_strings(groups),
        "strings_in_engine": sum(map(len, engine)),
        "margin": least.value,
        "margin_string": spell(least.string, alphabet),
        "margin_tokens": least.string,
        "margin_position": least.position,
    }


def count_strings(
    groups: Sequence[tuple[Int[np.ndarray, "_ _"], bool]],
) -> dict[str, Any]:
    """Lengths and numbers of strings and positions of a test without mismatches."""
    complete = [strings.shape[1] for strings, is_all in groups if is_all]
    return {
        "all_strings_up_to": max(complete, default=0),
        "lengths": [strings.shape[1] for strings, _ in groups],
        "strings": sum(len(strings) for strings, _ in groups),
        "positions": sum(strings.size for strings, _ in groups),
        "mismatches": 0,
    }


def spell(
    string: Sequence[int] | Int[np.ndarray, "tokens"], alphabet: Sequence[str]
) -> str:
    """Text of a string of ids; beyond 60, its first 40 symbols and its length."""
    names = [alphabet[symbol] for symbol in string]
    between = "" if all(len(name) == 1 for name in alphabet) else " "
    if len(names) > 60:
        return f"{between.join(names[:40])} ... ({len(names)} symbols)"
    return between.join(names)

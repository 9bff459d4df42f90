"""A compiled model against the evaluator: every short string, random longer ones.

The truth is compared at every position, not at the last alone. The margin of a model is
its smallest distance |logit − 1/2| from the threshold: 1/2 where every Boolean of the
model is exact.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from jax_models.eager import apply_eagerly
from jax_models.errors import InputError
from jax_models.evaluate import apply_logits, require_readout
from jax_models.logic.semantics import evaluate_formula
from jax_models.logic.syntax import Formula
from jax_models.transformer import Transformer

MOST_STRINGS = 4096
"""All strings of a length are tested where there are no more than this."""

LONGEST = 100
"""Random strings reach this length, or the one that is asked for if it is larger."""

_NUM_LONGER = 6  # lengths of random strings
_SYMBOLS_AT_ONCE = 2**16  # what is held is so many rows of the model


@dataclasses.dataclass(frozen=True)
class Margin:
    """The smallest distance of a logit from the threshold, and where it is."""

    value: float
    string: tuple[int, ...]  # symbol ids
    position: int  # from 0


def strings_to_test(
    num_symbols: int, longest: int, seed: int, most: int
) -> Iterator[tuple[np.ndarray, bool]]:
    """Yields strings to test, those of one length at a time, shortest first.

    Args:
        num_symbols: the size of the alphabet.
        longest: all strings up to this length, as far as a length has no more than
            `MOST_STRINGS`; random ones from there up to this length or `LONGEST`.
        seed: of the random strings. Each has its own random frequencies of the symbols,
            so that there are long runs of one symbol among them.
        most: the length that no string exceeds: the model's `exact_length`.

    Returns:
        Pairs of strings [count, n], and whether they are all of their length.
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


def eager_logits(model: Transformer, strings: np.ndarray) -> np.ndarray:
    """Returns the logit of a compiled formula at every position, computed by NumPy.

    Args:
        model: from `compile_formula`.
        strings: symbol ids [count, n].

    Returns:
        Logits [count, n], in the model's float type.
    """
    readout = require_readout(model)
    weight = np.asarray(readout.weight)[0]
    bias = 0 if readout.bias is None else np.asarray(readout.bias)[0]
    at_once = max(1, _SYMBOLS_AT_ONCE // strings.shape[1])
    parts = [
        apply_eagerly(model, strings[start : start + at_once]) @ weight + bias
        for start in range(0, len(strings), at_once)
    ]
    return np.concatenate(parts)


def engine_logits(model: Transformer, strings: np.ndarray) -> np.ndarray:
    """Returns the logit of a compiled formula at every position, computed by JAX.

    Args:
        model: from `compile_formula`.
        strings: symbol ids [count, n].

    Returns:
        Logits [count, n], in the model's float type.
    """
    return np.array([np.asarray(apply_logits(model, row))[:, 0] for row in strings])


def check_strings_of_model(
    model: Transformer,
    formula: Formula,
    alphabet: Sequence[str],
    strings: np.ndarray,
    logits_of: Callable[[Transformer, np.ndarray], np.ndarray] = eager_logits,
) -> Margin:
    """Checks that a model and the evaluator agree at every position of some strings.

    Args:
        model: the formula compiled; its logit is the truth from 1/2 on.
        formula: the formula.
        alphabet: the symbols in the order of their ids.
        strings: symbol ids [count, n], n >= 1, at least one.
        logits_of: what computes the logits: `eager_logits` or `engine_logits`.

    Returns:
        The margin over all positions of these strings.

    Raises:
        InputError: at the first position where they differ.
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


def spell(string: Sequence[int] | np.ndarray, alphabet: Sequence[str]) -> str:
    """Returns a string of ids as its symbols, shortened in the middle where it is long.

    Args:
        string: symbol ids.
        alphabet: the symbols; names of several characters are separated by spaces.
    """
    names = [alphabet[symbol] for symbol in string]
    between = "" if all(len(name) == 1 for name in alphabet) else " "
    if len(names) > 60:
        return f"{between.join(names[:40])} ... ({len(names)} symbols)"
    return between.join(names)

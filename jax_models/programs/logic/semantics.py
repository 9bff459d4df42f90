"""The truth of a formula at every position of a string, in exact integers.

Every operator takes O(n) operations a string: S (since) and U (until) compare the places
where their operands were last decided, counts are cumulative sums. A sub-formula is
evaluated once and forgotten after its last use, so that memory follows the width of a
formula and not its size.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import assert_never

import numpy as np
from jaxtyping import Bool, Int, Shaped
from numpy.typing import ArrayLike

from jax_models.arguments import check_alphabet, expect_kind, expect_strings
from jax_models.errors import InputError
from jax_models.programs.grammar import children, walk
from jax_models.programs.logic import syntax
from jax_models.programs.logic.syntax import Count, Formula


def evaluate_formula(
    formula: Formula, strings: ArrayLike, alphabet: Sequence[str]
) -> Bool[np.ndarray, "... tokens"]:
    """Decides a formula at every position of some strings.

    P φ is false at position 1 and N φ at position n; S, U and counts include the
    position itself; a predicate has its natural value at a count of 0.

    Args:
        formula: the formula.
        strings: symbol ids [n] or [count, n], n >= 1.
        alphabet: the symbols in the order of their ids.

    Returns:
        Booleans of the shape of `strings`.

    Raises:
        InputError: if an id is none of the alphabet's, a symbol of the formula is not in
            it, or the strings are empty or no integers.

    Source: docs/logic.md, section 1.

    Example:
        >>> formula = syntax.Since(syntax.Symbol("a"), syntax.Symbol("b"))
        >>> evaluate_formula(formula, [0, 1, 0, 0], "ab")
        array([False,  True,  True,  True])
    """
    symbols = check_alphabet(alphabet)
    tokens = check_strings(strings, symbols)
    check_symbols(formula, symbols)
    order = tuple(walk(formula))
    uses = Counter(child for part in order for child in children(part))
    known: dict[Formula | Count, Shaped[np.ndarray, "... tokens"]] = {}
    for part in order:
        operands = [known[child] for child in children(part)]
        known[part] = _decide(part, operands, tokens, symbols)
        for child in children(part):
            uses[child] -= 1
            if not uses[child]:
                del known[child]
    return known[formula]


def satisfies(
    formula: Formula, strings: ArrayLike, alphabet: Sequence[str]
) -> Bool[np.ndarray, "..."]:
    """Decides which strings satisfy a formula, which is to hold at position n.

    Args:
        formula: the formula.
        strings: symbol ids [n] or [count, n], n >= 1.
        alphabet: the symbols in the order of their ids.

    Returns:
        Booleans, of shape [] or [count].

    Raises:
        InputError: as `evaluate_formula`.
    """
    return evaluate_formula(formula, strings, alphabet)[..., -1]


def check_strings(
    strings: ArrayLike, alphabet: Sequence[str], name: str = "strings"
) -> Int[np.ndarray, "... tokens"]:
    """Returns strings as ids [n] or [count, n]; an `InputError` outside the alphabet."""
    tokens = expect_strings(name, strings)
    wrong = np.argwhere((tokens < 0) | (tokens >= len(alphabet)))
    if wrong.size:
        place = tuple(int(i) for i in wrong[0])
        raise InputError(
            f"id {tokens[place]} at {place} is no symbol; the alphabet has the ids 0 to "
            f"{len(alphabet) - 1} ({' '.join(alphabet)})"
        )
    return tokens


def check_symbols(formula: Formula, alphabet: Sequence[str]) -> None:
    """Raises `InputError` unless an alphabet has every symbol of a formula."""
    expect_kind("formula", formula, Formula, "one, such as parse_formula returns")
    named = {part.name for part in walk(formula) if isinstance(part, syntax.Symbol)}
    missing = sorted(named - set(alphabet))
    if missing:
        raise InputError(
            f"the formula speaks of the symbol {missing[0]!r}, which the alphabet "
            f"{' '.join(alphabet)} does not have; add it, or correct the formula"
        )


def _previous(truth: Bool[np.ndarray, "... tokens"]) -> Bool[np.ndarray, "... tokens"]:
    moved = np.zeros_like(truth)
    moved[..., 1:] = truth[..., :-1]
    return moved


def _since(
    left: Bool[np.ndarray, "... tokens"], right: Bool[np.ndarray, "... tokens"]
) -> Bool[np.ndarray, "... tokens"]:
    # The latest witness is the best one: `left` is to hold after it, so that wherever
    # it last failed was not later.
    witness, failure = _latest(right), _latest(~left)
    return (witness > 0) & (failure <= witness)


def _latest(truth: Bool[np.ndarray, "... tokens"]) -> Int[np.ndarray, "... tokens"]:
    positions = np.arange(1, truth.shape[-1] + 1)
    return np.maximum.accumulate(np.where(truth, positions, 0), axis=-1)


_FUNCTIONS: dict[str, Callable[..., np.ndarray]] = {
    "not": np.logical_not,
    "and": np.logical_and,
    "or": np.logical_or,
    "P": _previous,
    "S": _since,
    "prefix": lambda truth: np.cumsum(truth, axis=-1, dtype=np.int64),
}
# Operators that are others on the reversed string.
_MIRRORED = {"N": "P", "U": "S", "suffix": "prefix"}


def _decide(
    part: Formula | Count,
    operands: Sequence[Shaped[np.ndarray, "... tokens"]],
    tokens: Int[np.ndarray, "... tokens"],
    alphabet: Sequence[str],
) -> Shaped[np.ndarray, "... tokens"]:
    """Returns truth or count of `part` at every position, from its operands' values."""
    match part:
        case syntax.Symbol(name):
            return tokens == alphabet.index(name)
        case syntax.Constant(value):
            return np.full(tokens.shape, value)
        case syntax.Prefixed(word) | syntax.Joined(word) | Count(word):
            step = -1 if word in _MIRRORED else 1
            decide = _FUNCTIONS[_MIRRORED.get(word, word)]
            return decide(*(one[..., ::step] for one in operands))[..., ::step]
        case syntax.Comparison(terms, constant):
            return _at_least_one([k for k, _ in terms], operands, constant)
        case syntax.Predicate(count=None):
            positions = np.arange(1, tokens.shape[-1] + 1)
            return np.broadcast_to(_holds(part, positions), tokens.shape)
        case syntax.Predicate():
            return _holds(part, operands[0])
    assert_never(part)


def _holds(
    predicate: syntax.Predicate, numbers: Shaped[np.ndarray, "... tokens"]
) -> Bool[np.ndarray, "... tokens"]:
    kind = np.int64 if predicate.modulus < 2**63 else object
    return np.isin(np.asarray(numbers, kind) % predicate.modulus, predicate.residues)


def _at_least_one(
    factors: Sequence[int],
    counts: Sequence[Shaped[np.ndarray, "... tokens"]],
    constant: int,
) -> Bool[np.ndarray, "... tokens"]:
    largest = sum(map(abs, factors)) * counts[0].shape[-1] + abs(constant)
    # Python's integers where 64 bits might not do.
    kind = np.int64 if largest < 2**63 else object
    total = np.full(counts[0].shape, constant, kind)
    for factor, count in zip(factors, counts, strict=True):
        total += factor * count.astype(kind)
    return (total >= 1).astype(bool)

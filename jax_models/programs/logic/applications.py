"""Formulas of tasks that attention solves: n-grams, induction, hops, languages.

The tests or `jax_models.languages` define the same properties without formulas. At a
position Q_a says that its symbol is a, P and N refer to the previous and the next position,
S is "since", #<[φ] and #>[φ] count the positions up to it, or from it on, where φ holds.
"""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

from jax_models.arguments import check_alphabet, expect_integer
from jax_models.errors import InputError
from jax_models.programs.forms import LinearForm
from jax_models.programs.logic.syntax import (
    FALSE,
    FIRST,
    ODD,
    TRUE,
    And,
    Count,
    Formula,
    Next,
    Not,
    Or,
    Previous,
    Since,
    Symbol,
    at_least,
    historically,
    implies,
    is_zero,
)
from jax_models.run.device_memory import require_memory


def _balanced(join: Any, none: Formula, operands: Iterable[Formula]) -> Formula:
    """Joins formulas by `join` to a tree of least depth; `none` without operands."""
    level = list(operands) or [none]
    while len(level) > 1:
        pairs = [join(*level[k : k + 2]) for k in range(0, len(level) - 1, 2)]
        level = pairs + level[len(pairs) * 2 :]
    return level[0]


any_of = functools.partial(_balanced, Or, FALSE)
all_of = functools.partial(_balanced, And, TRUE)


def at_least_one(terms: Iterable[tuple[int, Count]], constant: int) -> Formula:
    """Returns the formula Σ λ_k C_k + constant ≥ 1 of `terms` (λ_k, C_k)."""
    return at_least(LinearForm(*({count: k} for k, count in terms)) + constant, 1)


def starting_ngram(gram: Sequence[str]) -> Formula:
    """Returns Q_{a1} ∧ N(Q_{a2} ∧ N(…)): a word begins at the position.

    Args:
        gram: the symbols a1, …, ak of the word, k >= 1.

    Raises:
        InputError: if `gram` is empty.

    Source: docs/logic.md, section 3.
    """
    *rest, formula = _symbols(gram)
    for symbol in reversed(rest):
        formula = And(symbol, Next(formula))
    return formula


def ending_ngram(gram: Sequence[str]) -> Formula:
    """Returns Q_{ak} ∧ P(Q_{a(k−1)} ∧ P(…)): a word ends at the position.

    Args:
        gram: the symbols a1, …, ak of the word, k >= 1.

    Raises:
        InputError: if `gram` is empty.

    Source: docs/logic.md, section 3.
    """
    formula, *rest = _symbols(gram)
    for symbol in rest:
        formula = And(symbol, Previous(formula))
    return formula


def _symbols(gram: Sequence[str]) -> list[Formula]:
    if not gram:
        raise InputError("an n-gram has at least one symbol, got none")
    return [Symbol(name) for name in gram]


def hops(alphabet: Sequence[str], output: str, num_hops: int) -> Formula:
    """Returns ψ^k_b: k hops from the position lead to the symbol b.

    ψ^0_b = Q_b,  ψ^k_b = ⋁_a [Q_a ∧ ((¬P Q_a) S (P Q_a ∧ ψ^{k−1}_b))]

    A hop goes to the latest position whose predecessor has the symbol that stands here;
    where there is none, ψ is false for every b. As ψ^{k−1}_b is shared, the formula has
    O(k |Σ|) different parts, though its tree has |Σ|^k.

    Args:
        alphabet: the symbols a that may stand at a position.
        output: the symbol b.
        num_hops: k >= 0.

    Raises:
        InputError: if the alphabet lacks `output` or is invalid, or k is negative.

    Source: docs/logic.md, section 3.
    """
    symbols = check_alphabet(alphabet)
    if output not in symbols:
        raise InputError(
            f"the output {output!r} is not in the alphabet {' '.join(symbols)}; name one "
            "of its symbols"
        )
    expect_integer("num_hops", num_hops, 0)
    require_memory(f"a formula of {num_hops} hops", 500 * num_hops * len(symbols))
    formula: Formula = Symbol(output)
    for _ in range(num_hops):
        formula = any_of([_latest_after(Symbol(name), formula) for name in symbols])
    return formula


def _latest_after(symbol: Formula, value: Formula) -> Formula:
    """Formula: `symbol` here, `value` at the latest position just after a `symbol`."""
    after = Previous(symbol)
    return And(symbol, Since(Not(after), And(after, value)))


def induction(alphabet: Sequence[str], output: str) -> Formula:
    """Returns ind_b: the symbol b followed the latest earlier occurrence of this symbol.

    At i: with j < i the last position of w_j = w_i, w_{j+1} = b; false without such a j.

    Args:
        alphabet: the symbols that may stand at a position.
        output: the symbol b.

    Raises:
        InputError: if the alphabet lacks `output` or is invalid.

    Source: docs/logic.md, section 3.
    """
    return hops(alphabet, output, 1)


def flip_flop() -> Formula:
    """Returns membership in the flip-flop language, over the symbols w r i 0 1.

    Instructions stand where nothing or a bit precedes, bits where an instruction does;
    the first symbol is w; a bit after r is the bit after the latest w; the last symbol
    is such a bit.

    Source: docs/logic.md, section 3; `jax_models.languages.FlipFlop`.
    """
    write, read, ignore, zero, one = map(Symbol, ("w", "r", "i", "0", "1"))
    bit, instruction = Or(zero, one), any_of([write, read, ignore])
    written, was_read = Previous(write), Previous(read)
    well_formed = all_of(
        [
            implies(bit, Previous(instruction)),
            implies(instruction, Not(Previous(instruction))),
            implies(FIRST, write),
            *(
                implies(And(b, was_read), Since(Not(written), And(written, b)))
                for b in (zero, one)
            ),
        ]
    )
    return all_of([historically(well_formed), bit, was_read])


def odd_parity(one: str = "1") -> Formula:
    """Returns ODD(#<[Q_1]): up to the position there is an odd number of ones.

    Args:
        one: the symbol that is counted.

    Source: docs/logic.md, section 3.
    """
    return ODD.of(Count("prefix", Symbol(one)))


def odd_parity_by_halves(one: str = "1") -> Formula:
    """Returns ¬(#<[#<[P Q_1] = #>[Q_1]] ≥ 1): PARITY without a numerical predicate.

    At position n it holds if and only if the number K of ones is odd: the ones before i
    and those from i on are equally many at some i just where K is even, since the former
    take every value from 0 to K or K − 1. At i < n it asks for a position j ≤ i.

    Args:
        one: the symbol that is counted.

    Source: docs/logic.md, section 3.
    """
    before = Count("prefix", Previous(Symbol(one)))
    rest = Count("suffix", Symbol(one))
    halves = Count("prefix", is_zero(LinearForm({before: 1, rest: -1})))
    return Not(at_least_one([(1, halves)], 0))


def majority(one: str = "1", zero: str = "0") -> Formula:
    """Returns #<[Q_1] ≥ #<[Q_0] + 1: more ones than zeros up to the position.

    Args:
        one: the symbol that is to be more frequent.
        zero: the other.

    Source: docs/logic.md, section 3; `jax_models.languages.Majority`.
    """
    ones, zeros = (Count("prefix", Symbol(name)) for name in (one, zero))
    return at_least_one([(1, ones), (-1, zeros)], 0)

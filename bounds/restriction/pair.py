"""A member and a non-member among the completions of a restriction, by language.

PARITY: any free bit will do. DYCK: the word begins with P = ceil(n/3) opening brackets
and ends with as many closing ones, so that no completion of the window between them goes
below zero, and the word is balanced exactly if the window is. A language that an
automaton decides at each length: by the states that can be reached, exactly. A membership
function: all completions, or many drawn ones.

Source: docs/theory/hard-attention.md, sections 2, 7 and 8 (Hahn 2020, Corollary 2).
"""

from collections.abc import Callable

import jax
import numpy as np
from numpy.typing import NDArray

from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.sensitivity import MOST_ENUMERATED, reachable_classes
from jax_models.languages import Automaton, ones_automaton, word_automaton

Membership = Callable[[NDArray[np.int32]], bool]
Pair = tuple[NDArray[np.int32], NDArray[np.int32]]
FindPair = Callable[[PartialInput], Pair | None]

# Completions that are drawn of more than can be listed, their neighbours besides.
NUM_DRAWN = 64


def named_automaton(language: str, symbols: int) -> Automaton | None:
    """Returns the automaton of a named language at one length, None if it has none here.

    Args:
        language: The name.
        symbols: Length of the string, without an end token.
    """
    if language == "ones":
        return ones_automaton()
    if language == "anbn":
        half, odd = divmod(symbols, 2)
        if odd:  # no word has an odd length
            return Automaton(((0, 0),), frozenset(), end=2)
        return word_automaton([0] * half + [1] * half)
    return None


def parity_pair(partial: PartialInput) -> Pair | None:
    """Returns two completions that differ in one free bit.

    Args:
        partial: The restriction.
    """
    free = len(partial.free)
    if not free:
        return None
    bits = np.zeros(free, int)
    return partial.complete(bits), partial.complete(bits + (np.arange(free) == 0))


def dyck_pair(member: Membership) -> FindPair:
    """Returns what finds a balanced completion, and one with a bracket turned.

    Args:
        member: Whether a word is of the language.
    """

    def find(partial: PartialInput) -> Pair | None:
        fixed = partial.tokens[partial.tokens != FREE]
        free = len(partial.free)
        opened = int(((fixed == 0) | (fixed == 2)).sum())
        closed = int(((fixed == 1) | (fixed == 3)).sum())
        closing = (free + opened - closed) // 2
        if not free or not 0 <= closing <= free:
            return None
        # Opening brackets first: no other arrangement goes less deep.
        bits = (np.arange(free) >= free - closing).astype(int)
        word = partial.complete(bits)
        if not member(word):
            return None
        turned = partial.complete(np.where(np.arange(free) == 0, 1 - bits, bits))
        return word, turned

    return find


def reachable_pair(decider: Automaton | Membership, seed: int) -> FindPair:
    """Returns what finds a member and a non-member, if the restriction leaves both.

    Args:
        decider: An automaton, whose answer is exact, or a membership function.
        seed: Of the completions that are drawn where there are too many.
    """
    key = jax.random.key(seed)

    def find(partial: PartialInput) -> Pair | None:
        found = reachable_classes(
            decider, partial.tokens, partial.symbols, key=key, num_samples=NUM_DRAWN
        )
        if found.member is None or found.non_member is None:
            return None
        return found.member.astype(np.int32), found.non_member.astype(np.int32)

    return find


def searched(decider: Automaton | Membership, free: int) -> str:
    """Returns which completions `reachable_pair` looks at, in words.

    Args:
        decider: As there.
        free: Free bits F.
    """
    if isinstance(decider, Automaton) or free <= MOST_ENUMERATED:
        return "all"
    return f"{NUM_DRAWN + 2} drawn ones and their neighbours"

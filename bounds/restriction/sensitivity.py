"""Sufficiently sensitive languages: restrictions that leave the answer open.

Hahn's Theorem 1 holds for every language of which the restrictions that the argument
produces do not force the answer (Hahn 2020, after Corollary 2): where F free bits keep
it open whatever the restriction, the threshold recursion applies with F free bits asked
for in place of one (docs/theory/hard-attention.md, sections 6 and 8). The answer is
whether an input is a member; it is forced where all completions of a restriction agree.
A restriction is an array of tokens with -1 at its free positions, each of which takes
one of two symbols; n is its length, S the number of states of an automaton.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Bool, Int, Key
from numpy.typing import ArrayLike

from bounds.restriction.analysis import FREE, PartialInput, read_partial_input
from jax_models import InputError
from jax_models.arguments import expect_kind, show
from jax_models.languages import Automaton, Language

Tokens = Int[np.ndarray, "tokens"]
Membership = Callable[[Tokens], Any]
States = frozenset[int]
# Beyond it a membership function is asked about some completions, not about all.
MOST_ENUMERATED = 16


@dataclasses.dataclass(frozen=True)
class ReachableClasses:
    """A member and a non-member among the completions of a restriction.

    None stands for none found; that is a proof of absence only where `exact`.
    """

    member: Tokens | None
    non_member: Tokens | None
    exact: bool


@dataclasses.dataclass(frozen=True)
class ForcedAnswer:
    """A restriction with most free bits that forces the answer."""

    free: int
    rho: tuple[int, ...]  # -1 at its free positions

    @property
    def least_free(self) -> int:
        """F: restrictions with F or more free bits leave a member and a non-member.

        More than there are free bits where the answer is forced with all of them free.
        """
        return self.free + 1


def reachable_classes(
    language: Automaton | Language | Membership,
    rho: ArrayLike,
    symbols: Sequence[int] = (0, 1),
    *,
    key: Key[Array, ""] | None = None,
    num_samples: int = 1000,
) -> ReachableClasses:
    """Returns whether a restriction leaves the answer open, with a witness pair.

    Exact for an automaton, by the states that each prefix can reach, in O(n S); exact
    for a membership function of at most 16 free bits, by all completions. Beyond, it
    tries random completions and their neighbours: what it finds is certain, what it
    does not find is not shown to be absent, and `exact` is False unless it found both.

    Args:
        language: an automaton, a language of `jax_models.LANGUAGES`, or a function of
            tokens [n] that says whether they are a member.
        rho: the restriction [n], -1 at its free positions.
        symbols: the two tokens of a free position.
        key: a JAX random key, needed for more than 16 free bits and no automaton.
        num_samples: random completions to try there.

    Returns:
        A member and a non-member, where there are or were found.

    Raises:
        InputError: if the restriction or the symbols are none, or a key is missing.

    Source:
        Hahn 2020, section 5, the discussion after Corollary 2;
        docs/theory/hard-attention.md, section 8.
    """
    partial = read_partial_input("rho", rho, symbols)
    if isinstance(language, Automaton):
        found = [_complete(language, partial, wanted) for wanted in (True, False)]
        return ReachableClasses(found[0], found[1], exact=True)
    member = language.contains if isinstance(language, Language) else language
    if not callable(member):
        raise InputError(
            f"language = {show(language)}; expected an automaton, a language or a "
            "membership function"
        )
    free = len(partial.free)
    exact = free <= MOST_ENUMERATED
    if exact:
        choices: Iterable[Any] = itertools.product((0, 1), repeat=free)
    elif key is None:
        raise InputError(
            f"{free} bits are free: beyond {MOST_ENUMERATED} a membership function "
            "is sampled, which needs a random key; or give an automaton"
        )
    else:
        choices = _sample(key, free, num_samples)
    found = {}
    for bits in choices:
        completed = partial.complete(np.asarray(bits, int))
        found.setdefault(bool(member(completed)), completed)
        if len(found) == 2:
            return ReachableClasses(found[True], found[False], exact=True)
    return ReachableClasses(found.get(True), found.get(False), exact)


def most_free_forced(
    automaton: Automaton,
    rho: ArrayLike,
    symbols: Sequence[int] = (0, 1),
) -> ForcedAnswer:
    """Returns the most bits that may stay free while the answer is forced, exactly.

        max { free bits of rho' : rho' extends rho, all its completions alike }

    By the sets of states that a restricted prefix can reach, each with the most free
    bits that lead to it: at most 2^S sets, but few where the automaton counts. PARITY
    has 0, so F = 1; 1* and a^m b^m have n - 1, so that F = n and no restriction argument
    applies; MAJORITY has floor(n/2).

    Args:
        automaton: the language.
        rho: a pre-restriction [n], which the restrictions extend; all -1 for none.
        symbols: the two tokens that a free position takes, or is fixed to.

    Returns:
        The most free bits, and a restriction that has them.

    Raises:
        InputError: if the restriction or the symbols are none.

    Source:
        docs/theory/hard-attention.md, section 8.
    """
    partial = read_partial_input("rho", rho, symbols)
    expect_kind("automaton", automaton, Automaton, "an Automaton")
    tokens, length = partial.tokens, _num_symbols(automaton, partial)
    # By set of states: free bits, and the choices that lead there.
    best: dict[States, tuple[int, Any]] = {frozenset([automaton.start]): (0, None)}
    for token in tokens[:length]:
        reached: dict[States, tuple[int, Any]] = {}
        # A free position is fixed to either symbol, or stays free.
        choices = [(int(token),)]
        if token == FREE:
            choices = [*((s,) for s in partial.symbols), partial.symbols]
        for states, (free, path) in best.items():
            for choice in choices:
                image = _image(automaton, states, choice)
                count = free + (len(choice) == 2)
                if count > reached.get(image, (-1, None))[0]:
                    step = FREE if len(choice) == 2 else choice[0]
                    reached[image] = (count, (path, step))
        best = reached
    # The answer is forced where all states that can be reached accept, or none.
    forced = [
        (count, path)
        for states, (count, path) in best.items()
        if states <= automaton.accepting or not states & automaton.accepting
    ]
    count, path = max(forced, key=lambda entry: entry[0])
    found = list(tokens[length:])
    while path is not None:
        path, step = path
        found.insert(0, step)
    return ForcedAnswer(count, tuple(int(token) for token in found))


def first_impossible_length(
    least_free: Callable[[int], int],
    guaranteed_free: Callable[[int], int | float | Fraction],
    lengths: Iterable[int],
) -> int | None:
    """Returns the first length at which a language is beyond a kind of transformer.

    At length n, some restriction of at least `guaranteed_free(n)` free bits has one
    output; if `least_free(n)` of them leave a member and a non-member, the output is
    wrong for some input. Theorem 8 guarantees ceil(phi n) - (H+1) t free bits: the share phi
    is free before closing fixes (H+1) t, for H heads that read trees of depth t.

    Args:
        least_free: F of the language at a length; see `ForcedAnswer`.
        guaranteed_free: the free bits that a reduction leaves at that length.
        lengths: to try, in this order.

    Returns:
        The first of them with guaranteed_free(n) >= least_free(n) <= n, or None.

    Source:
        docs/theory/hard-attention.md, sections 6 and 8, Theorem 8.
    """
    impossible = lambda n: guaranteed_free(n) >= least_free(n) <= n
    return next(filter(impossible, lengths), None)


def _num_symbols(automaton: Automaton, partial: PartialInput) -> int:
    """Length of the inputs, end token left out; refuses symbols the automaton lacks."""
    pair = partial.symbols
    if max(pair) >= automaton.num_symbols:
        raise InputError(
            f"symbols = {pair}: {max(pair)} is no symbol of the automaton; its symbols "
            f"are 0 to {automaton.num_symbols - 1}"
        )
    zeros = np.zeros(len(partial.free), int)
    return len(automaton.symbols_of(partial.complete(zeros)))


def _complete(
    automaton: Automaton, partial: PartialInput, wanted: bool
) -> Tokens | None:
    """Returns a completion that the automaton accepts (rejects, if not `wanted`), or None."""
    length, tokens = _num_symbols(automaton, partial), partial.tokens
    # By prefix: the states that it can reach, with a state and a symbol before each.
    steps: list[dict[int, tuple[int, int]]] = []
    states = {automaton.start}
    for token in tokens[:length]:
        step: dict[int, tuple[int, int]] = {}
        for state in states:
            for symbol in partial.symbols if token == FREE else (int(token),):
                after = automaton.transitions[state][symbol]
                # One way to a state is enough.
                step.setdefault(after, (state, symbol))
        steps.append(step)
        states = set(step)
    final = [state for state in states if (state in automaton.accepting) == wanted]
    if not final:
        return None
    state, completed = final[0], tokens.copy()
    # Back from a final state along the ways that reach it.
    for i in reversed(range(len(steps))):
        state, completed[i] = steps[i][state]
    return completed


def _image(automaton: Automaton, states: States, symbols: Sequence[int]) -> States:
    """States that an automaton reaches from `states` by one of the symbols."""
    return frozenset(automaton.transitions[q][s] for q in states for s in symbols)


def _sample(
    key: Key[Array, ""], count: int, num_samples: int
) -> Iterable[Bool[np.ndarray, "free"]]:
    """Yields all zeros, all ones and random bits, each followed by its one-bit flips."""
    drawn = np.asarray(jax.random.bernoulli(key, shape=(num_samples, count)))
    for bits in (np.zeros(count, bool), np.ones(count, bool), *drawn):
        yield bits
        for at in range(count):
            flipped = bits.copy()
            flipped[at] = not flipped[at]
            yield flipped

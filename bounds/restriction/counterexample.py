"""Counterexamples: two inputs that a model cannot tell apart, one in the language.

A member is an input that the language contains; a completion of a partial input gives
each of its free positions one of two symbols, its bit. A pair of a member and a
non-member is found by language: for PARITY any free bit will do, for DYCK brackets are
counted in the free window, an automaton is decided by the states that can be reached, and
a membership function by all completions, or many drawn ones. Where all completions are
alike to the language, the model may be right. Source: docs/theory/hard-attention.md,
sections 2, 7 and 8 (Hahn 2020, Corollary 2).
"""

import dataclasses
import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

import jax_models as jm
from bounds.curves.inputs import end_after
from bounds.influence import compute_influence
from bounds.restriction.analysis import FREE, PartialInput
from bounds.restriction.restriction import (
    Restriction,
    Tokens,
    final_activation,
    require_table,
    restrict,
)
from bounds.restriction.search import Method, Remember, Report, SearchPlan, forget
from bounds.restriction.sensitivity import MOST_ENUMERATED, reachable_classes
from jax_models.arguments import expect_length
from jax_models.languages import (
    Automaton,
    Language,
    RegularLanguage,
    get_language,
    ones_automaton,
    word_automaton,
)
from jax_models.model.transformer import read_logits

Membership = Callable[[Tokens], bool]
Pair = tuple[Tokens, Tokens]

# Completions drawn where there are too many to list; their neighbours come on top.
NUM_DRAWN = 64
# Ways from a member to a non-member, bit by bit: from both ends, and in drawn orders.
NUM_WAYS = 8
LanguageName = Literal["parity", "dyck1", "dyck2", "ones", "anbn"]
NAMES: tuple[str, ...] = get_args(LanguageName)
AnyLanguage: TypeAlias = LanguageName | Automaton | RegularLanguage | Membership


def parity_pair(partial: PartialInput) -> Pair | None:
    """Two completions of a partial input that differ in one bit; None if none is free."""
    free = len(partial.free)
    if not free:
        return None
    bits = np.zeros(free, int)
    return partial.complete(bits), partial.complete(bits + (np.arange(free) == 0))


def dyck_pair(partial: PartialInput, member: Membership) -> Pair | None:
    """A balanced completion and one with a bracket changed; None if none is balanced."""
    fixed, free = partial.tokens[partial.tokens != FREE], len(partial.free)
    # So many of the free brackets have to close that the word sums to 0. Odd tokens close;
    # an end token, which is even, is rounded away.
    closing = (free + int((1 - 2 * (fixed % 2)).sum())) // 2
    if not free or not 0 <= closing <= free:
        return None
    # Opening brackets first: no other arrangement goes less deep.
    bits = (np.arange(free) >= free - closing).astype(int)
    word = partial.complete(bits)
    if not member(word):
        return None
    # Any one bracket that changes takes the sum away from 0.
    return word, partial.complete(np.where(np.arange(free) == 0, 1 - bits, bits))


def _at_the_edge(pair: Pair, member: Membership, seed: int) -> Iterator[Tokens]:
    """Yields the last member on paths from member to non-member, a token a step."""
    member_word, other = pair
    differing = np.flatnonzero(member_word != other)
    generator = np.random.default_rng(seed)
    shuffled = (generator.permutation(differing) for _ in range(NUM_WAYS - 2))
    known: set[bytes] = set()
    for way in (differing, differing[::-1], *shuffled):
        word = member_word.copy()
        for place in way:
            after = word.copy()
            after[place] = other[place]
            if not member(after):
                break
            word = after
        if word.tobytes() not in known:
            known.add(word.tobytes())
            yield word


@dataclasses.dataclass(frozen=True)
class _Language:
    """A language, to search a member and a non-member to which a model gives one output."""

    model: jm.Transformer
    name: str
    entry: str | dict[str, Any] | None  # of a certificate, by which anyone can decide
    member: Membership
    seed: int
    # Of a language that may have few members; None where brackets or bits are counted.
    decider: Automaton | Membership | None = None
    tokens: Tokens | None = None  # fixed beforehand

    def find(self, partial: PartialInput) -> Pair | None:
        """A member and a non-member that complete a partial input, or None."""
        if self.decider is None:
            if self.name == "parity":
                return parity_pair(partial)
            return dyck_pair(partial, self.member)
        asked = self.decider, partial.tokens, partial.symbols
        key = jax.random.key(self.seed)
        found = reachable_classes(*asked, key=key, num_samples=NUM_DRAWN)
        if found.member is None or found.non_member is None:
            return None
        return found.member, found.non_member

    def neighbours(self, given: PartialInput, query: int) -> Iterator[PartialInput]:
        """Yields members with one position free: it decides membership, not the output."""
        pair = self.find(given)
        for word in [] if pair is None else _at_the_edge(pair, self.member, self.seed):
            # The sum of both symbols less one is the other.
            flipped = {i: word.copy() for i in given.free}
            for place, other in flipped.items():
                other[place] = sum(given.symbols) - word[place]
            places = [i for i, other in flipped.items() if not self.member(other)]
            influence = compute_influence(
                self.model,
                word,
                query=query,
                symbols=given.symbols,
                positions=places,
                include_query=True,
                ties="ignore",
                rounding="none",
                keep="position_max",
            )
            assert influence.position_upper is not None
            # The change of that bit makes a non-member, and leaves the query's output.
            for place in places:
                if influence.position_upper[place] == 0:
                    yield PartialInput(word, given.symbols).release([place])

    def conclude(self, found: Restriction) -> Restriction:
        """Returns `found` with a counterexample to the language, or reasons for none."""
        pair, certificate = self.find(found.partial), dict(found.certificate)
        if self.entry is not None:
            certificate["language"] = self.entry
        found = dataclasses.replace(found, language=self.name, certificate=certificate)
        if pair is None:
            reasons = (*found.reasons, *self._why_alike(found))
            return dataclasses.replace(found, reasons=reasons)
        for tokens in pair:
            output = final_activation(self.model, tokens, found.query)
            if not np.array_equal(output, found.output):
                raise RuntimeError(
                    "the model's outputs differ within a subcube on which they were "
                    "shown to be equal: an error in the analysis or in the compiled model"
                )
        members = (bool(self.member(pair[0])), bool(self.member(pair[1])))
        assert members[0] != members[1]
        # Half of the completions have odd parity.
        log2 = len(found.free) - 1 if self.name == "parity" else None
        reasons = found.reasons
        accepted = self._accepts(found)
        if accepted is not None:
            wrong = ("first", "second")[members.index(not accepted)]
            reasons += (
                f"the model {'accepts' if accepted else 'rejects'} both of the pair"
                f"{found.where_read}, and is wrong on the {wrong}",
            )
        if self.entry is not None:
            certificate |= {
                "pair": [tokens.tolist() for tokens in pair],
                "members": list(members),
                "log2_misclassified": log2,
            }
        shown = {"pair": pair, "members": members, "log2_misclassified": log2}
        return dataclasses.replace(found, reasons=reasons, **shown)

    def _why_alike(self, found: Restriction) -> tuple[str, ...]:
        free = len(found.free)
        if not free:
            more = "use a longer input, or a pre_restriction that leaves some free (-1)"
            return () if found.reasons else (f"no position is free beforehand; {more}",)
        if self.decider is None:
            return (
                f"none of the 2^{free} completions is a word of {self.name}: too many "
                "brackets of one kind are fixed; fix others by pre_restriction",
            )
        member = self.member(found.partial.complete(np.zeros(free, int)))
        other = "non-member" if member else "member"
        advice = f"try a {other} as pre_restriction, a few positions free (-1)"
        if self.tokens is not None:
            whole = dataclasses.replace(found.partial, tokens=self.tokens)
            if self.find(whole) is None:
                advice = (
                    f"take another length: at n = {whole.length} all inputs of both are"
                )
        listed = isinstance(self.decider, Automaton) or free <= MOST_ENUMERATED
        tried = "all" if listed else f"{NUM_DRAWN + 2} drawn ones and their neighbours"
        alike = (
            f"of the 2^{free} completions {tried} are classified alike by the "
            f"{self.name if self.entry is None else 'language'} too, as "
            f"{'members' if member else 'non-members'}, so there is no contradiction; "
            f"next, {advice}"
        )
        accepted = self._accepts(found)
        if accepted is None:
            return (alike,)
        says = "accepts" if accepted else "rejects"
        right = "rightly" if accepted == member else "wrongly"
        return alike, f"the model {says} them{found.where_read}, {right}"

    def _accepts(self, found: Restriction) -> bool | None:
        """Whether the model's accept rule accepts the output of `found`; None if no rule."""
        rule = self.model.accept
        if rule is None:
            return None
        logits = read_logits(self.model, jnp.asarray(found.output))
        return float(logits[rule.class_]) >= rule.threshold


def find_counterexample(
    model: jm.Transformer,
    length: int,
    language: AnyLanguage,
    *,
    pre_restriction: ArrayLike | None = None,
    query: int = -1,
    caps: Sequence[int] | None = None,
    method: Method = "auto",
    attempts: int | None = None,
    reverse_pass: bool | None = None,
    seed: int = 0,
    report: Report | None = None,
    remember: Remember = forget,
) -> Restriction:
    """Returns a restriction with two completions, exactly one of which is a member.

    The model computes the same final activation for both, to the bit, so it misclassifies
    one of them; for PARITY with F free bits it misclassifies at least 2^(F-1) inputs.
    Where there is no such pair the result has the reasons, and shows nothing about the
    model.

    Args:
        model: A float64 transformer of hard attention. Where it has an end token (a
            symbol beyond the language's that may not be substituted), that stands last.
        length: n, an end token counted.
        language: "parity", "dyck1", "dyck2", "ones" (1*), "anbn" (a^m b^m), a
            `RegularLanguage`, an automaton, or a function that decides whether an input
            is a member (bits 0 and 1; nothing is fixed beforehand for these two). Free
            positions range over a language's first two symbols.
        pre_restriction: Tokens that are fixed beforehand, -1 where a position is free;
            by default brackets around the window, and an end token.
        query: The position whose final activation is the output.
        caps: As in `find_restriction`.
        method: As in `find_restriction`; for a language that an automaton or a function
            decides, "auto" first tries a member and its neighbours, all but one bit fixed,
            unless caps or attempts are given.
        attempts: As in `find_restriction`; more are made where none has a pair.
        reverse_pass: As in `find_restriction`.
        seed: Seed of the attempts and draws.
        report: As in `find_restriction`.
        remember: As in `find_restriction`.

    Returns:
        The restriction; `pair` and `members` are None where no pair was found.

    Raises:
        InputError: for an unknown language, an odd number of brackets, a vocabulary that
            is too small, and as `find_restriction`.

    Source:
        Hahn 2020, Corollary 2; docs/theory/hard-attention.md, sections 2 and 7,
        Corollary 3.
    """
    length = expect_length(length)
    require_table(length)
    given = _given(model, length, language, seed)
    if pre_restriction is None:
        pre_restriction = given.tokens
    # Brackets that are fixed in the window have to balance.
    dyck = given.name.startswith("dyck")
    plan = SearchPlan(
        caps,
        method,
        attempts,
        reverse_pass,
        balance=dyck,
        seed=seed,
        remember=remember,
        useful=lambda restricted: given.find(restricted) is not None,
        report=report,
        neighbours=None if given.decider is None else given.neighbours,
    )
    found = restrict(model, length, pre_restriction, (0, 1), query, plan)
    ranges = None
    if isinstance(language, RegularLanguage) and len(language.symbols) > 2:
        first, second, *_ = language.symbols
        ranges = f"free positions range over {first} and {second}, of more symbols"
    elif language == "dyck2" and found.free:
        ranges = "free positions range over ( and ), one of the two types of bracket"
    if ranges is not None:
        found = dataclasses.replace(found, reasons=(*found.reasons, ranges))
    return given.conclude(found)


def _given(
    model: jm.Transformer, length: int, language: AnyLanguage, seed: int
) -> _Language:
    entry, tokens, decider = None, None, None
    if isinstance(language, Automaton):
        name, member, decider = "automaton", _decides(language), language
    elif isinstance(language, RegularLanguage):
        if len(language.symbols) < 2:
            raise jm.InputError(
                f"{language.name}: the alphabet has one symbol; a free position needs two"
            )
        name, decider = language.name, language.automaton
        entry, member = json.loads(language.text), _decides(language)
        tokens = prepare(name, length, end_after(model, language))
    elif callable(language):
        name, member, decider = "membership function", language, language
    elif language in NAMES:
        name = entry = language
        known = get_language(language)
        end, member = end_after(model, known), _decides(known)
        tokens = prepare(language, length, end)
        decider = ones_automaton() if language == "ones" else None
        if language == "anbn":
            # No word has an odd length: at one, that of the automaton is shorter.
            half = (length - (end is not None)) // 2
            decider = word_automaton([0] * half + [1] * half)
    else:
        raise jm.InputError(
            f"language = {language!r}; expected one of {', '.join(NAMES)}, an automaton, "
            "or a function that decides membership"
        )
    return _Language(model, name, entry, member, seed, decider, tokens)


def prepare(language: str, length: int, end: int | None) -> Tokens:
    """Restriction to start from: fixed end token, and for DYCK brackets around a window."""
    tokens = np.full(length, FREE, np.int32)
    symbols = length - (end is not None)
    if end is not None:
        tokens[-1] = end
    if not language.startswith("dyck"):
        return tokens
    if symbols % 2:
        raise jm.InputError(
            f"{language} has no word of {symbols} symbols, an odd number, so every input "
            f"is a non-member; use a length with an even number of symbols"
        )
    # With a third of the word opening and a third closing, no completion of the window
    # between them goes below zero, and the word is balanced exactly if the window is.
    outer = math.ceil(symbols / 3)
    tokens[:outer], tokens[symbols - outer : symbols] = 0, 1
    return tokens


def _decides(language: Language | Automaton) -> Membership:
    return lambda tokens: bool(language.contains(tokens))

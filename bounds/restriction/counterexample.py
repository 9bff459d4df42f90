"""Counterexamples: two inputs that a model cannot tell apart, of which one is a member.

PARITY: any free bit of a restriction will do, and half of the completions of it are
misclassified. DYCK: the word begins with P = ceil(n/3) opening brackets and ends with as
many closing ones, so that no completion of the window between them goes below zero, and
the word is balanced exactly if the window is.

Source: hard-attention.md, section 1, Corollary 3, and section 4 (Hahn 2020, Corollary 2).
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Literal

import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

import jax_models as jm
from bounds.inputs import sampled_inputs
from bounds.restriction.attempts import Method, Plan, Remember, forget
from bounds.restriction.partial_input import FREE, PartialInput
from bounds.restriction.restriction import Restriction, final_activation, restrict
from bounds.restriction.search import Report
from jax_models.languages import get_language

LanguageName = Literal["parity", "dyck1", "dyck2"]
NAMES: tuple[str, ...] = ("parity", "dyck1", "dyck2")
Membership = Callable[[NDArray[np.int32]], bool]

# Completions that are listed, or drawn where there are more.
MOST_COMPLETIONS = 2**12

Pair = tuple[NDArray[np.int32], NDArray[np.int32]]


def find_counterexample(
    model: jm.Transformer,
    length: int,
    language: LanguageName | Membership,
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
    Where there is no such pair the result says why, and shows nothing about the model.

    Args:
        model: A float64 transformer of hard attention. Where it has an end token (a
            symbol beyond the language's that may not be substituted), that stands last.
        length: n, an end token counted.
        language: "parity", "dyck1", "dyck2", or a function that tells of an input [n]
            whether it is a member (bits 0 and 1; nothing is fixed beforehand then).
        pre_restriction: Tokens [n] that are fixed beforehand, -1 where a position is
            free; by default what the language asks for.
        query: The position whose final activation is the output.
        caps: As in `find_restriction`.
        method: As in `find_restriction`.
        attempts: As in `find_restriction`; more are made where none has a pair.
        reverse_pass: As in `find_restriction`.
        seed: Of the attempts and draws.
        report: As in `find_restriction`.
        remember: As in `find_restriction`.

    Returns:
        The restriction; `pair` and `members` are None where no pair was found.

    Raises:
        InputError: for an unknown language, an odd number of brackets, a vocabulary that
            is too small, and as `find_restriction`.

    Source:
        Hahn 2020, Corollary 2, as hard-attention.md, sections 1 and 4 correct it.
    """
    dyck = False
    if callable(language):
        name, member = "membership function", language
        find = _search_pair(member, seed)
    else:
        if language not in NAMES:
            raise jm.InputError(
                f"language = {language!r}; expected one of {', '.join(NAMES)}, or a "
                "function that decides membership"
            )
        name, member = language, _decides(language)
        end = sampled_inputs(model, language, 1, seed).end
        dyck = language != "parity"
        if pre_restriction is None:
            pre_restriction = prepare(language, length, end)
        find = _dyck_pair(member) if dyck else _parity_pair
    plan = Plan(caps, method, attempts, reverse_pass, dyck, seed, remember)
    found = restrict(
        model,
        length,
        pre_restriction,
        (0, 1),
        query,
        plan,
        lambda partial: find(partial) is not None,
        report,
    )
    pair = find(found.partial)
    if pair is None:
        why = _without_pair(found, name, callable(language))
        certificate = found.certificate
        if not callable(language):
            certificate = {**certificate, "language": name}
        return dataclasses.replace(
            found,
            language=name,
            certificate=certificate,
            reasons=(*found.reasons, *why),
        )
    return _with_pair(model, found, pair, name, member, callable(language))


def prepare(language: str, length: int, end: int | None) -> NDArray[np.int32]:
    """Returns what is fixed beforehand: brackets around the window, and an end token.

    Args:
        language: "parity", "dyck1" or "dyck2".
        length: n, an end token counted.
        end: The end token, if any.

    Returns:
        Tokens, -1 where a position is free [n].

    Raises:
        InputError: for an odd number of brackets: no such string is a member.
    """
    tokens = np.full(length, FREE, np.int32)
    symbols = length - (end is not None)
    if end is not None:
        tokens[-1] = end
    if language == "parity":
        return tokens
    if symbols % 2:
        raise jm.InputError(
            f"{language} has no word of {symbols} symbols, an odd number, so every input "
            f"is a non-member; use a length with an even number of symbols"
        )
    outer = math.ceil(symbols / 3)
    tokens[:outer], tokens[symbols - outer : symbols] = 0, 1
    return tokens


def _decides(language: str) -> Membership:
    known = get_language(language)
    return lambda tokens: bool(known.contains(tokens))


def _parity_pair(partial: PartialInput) -> Pair | None:
    """Two completions that differ in one free bit."""
    free = len(partial.free)
    if not free:
        return None
    bits = np.zeros(free, int)
    return partial.complete(bits), partial.complete(bits + (np.arange(free) == 0))


def _dyck_pair(member: Membership) -> Callable[[PartialInput], Pair | None]:
    """A balanced completion, and one with a bracket turned."""

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


def _search_pair(
    member: Membership, seed: int
) -> Callable[[PartialInput], Pair | None]:
    """A member and a non-member among all completions, or among many drawn."""

    def find(partial: PartialInput) -> Pair | None:
        free = len(partial.free)
        if 2**free <= MOST_COMPLETIONS:
            choices = np.arange(2**free)[:, None] >> np.arange(free) & 1
        else:
            generator = np.random.default_rng(seed)
            choices = generator.integers(0, 2, (MOST_COMPLETIONS, free))
            choices[0], choices[1] = 0, 1
        sides: dict[bool, NDArray[np.int32]] = {}
        for bits in choices:
            tokens = partial.complete(bits)
            sides.setdefault(bool(member(tokens)), tokens)
            if len(sides) == 2:
                return sides[True], sides[False]
        return None

    return find


def _without_pair(found: Restriction, name: str, searched: bool) -> tuple[str, ...]:
    """Why there is no pair, where a bit is free."""
    free = len(found.free)
    if not free:
        return () if found.reasons else ("no position is free beforehand",)
    if not searched:
        return (
            f"none of the 2^{free} completions is a word of {name}: too many brackets of "
            "one kind are fixed",
        )
    how = "all" if 2**free <= MOST_COMPLETIONS else f"{MOST_COMPLETIONS} drawn ones"
    return (
        f"of the 2^{free} completions {how} are classified alike by the membership "
        "function too, so the constant output misclassifies none of them",
    )


def _with_pair(
    model: jm.Transformer,
    found: Restriction,
    pair: Pair,
    name: str,
    member: Membership,
    searched: bool,
) -> Restriction:
    outputs = [final_activation(model, tokens, found.query) for tokens in pair]
    if not all(np.array_equal(output, found.output) for output in outputs):
        raise RuntimeError(
            "the model's outputs differ within a subcube on which they were shown to be "
            "equal: an error in the analysis or in the compiled model"
        )
    members = (bool(member(pair[0])), bool(member(pair[1])))
    assert members[0] != members[1]
    free = len(found.free)
    log2 = free - 1 if name == "parity" else None
    reasons = list(found.reasons)
    if model.accept is not None:
        readout = model.readout
        assert readout is not None
        logit = float(readout(jnp.asarray(outputs[0]))[model.accept.class_])
        accepted = logit >= model.accept.threshold
        wrong = members.index(not accepted)
        last = found.query == len(found.rho) - 1
        read = "" if last else f", read at position {found.query},"
        reasons.append(
            f"the model{read} {'accepts' if accepted else 'rejects'} both of the pair and is "
            f"wrong on the {('first', 'second')[wrong]}"
        )
    certificate = dict(found.certificate)
    if not searched:
        certificate |= {
            "pair": [tokens.tolist() for tokens in pair],
            "language": name,
            "members": list(members),
            "log2_misclassified": log2,
        }
    return dataclasses.replace(
        found,
        certificate=certificate,
        pair=pair,
        language=name,
        members=members,
        log2_misclassified=log2,
        reasons=tuple(reasons),
    )

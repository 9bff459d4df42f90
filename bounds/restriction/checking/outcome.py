"""The end of a certificate: the output, the pair, the counts, by running the model.

The pair is judged by the forward pass of `jax_models`, to the bit; this alone shows
that one of the two strings is misclassified. The tables show it of the whole subcube.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

import jax_models as jm
from bounds.restriction.checking.claim import FREE, Claim
from bounds.restriction.checking.enclosure import Enclosure
from bounds.restriction.checking.pointwise import layer_norm
from bounds.restriction.checking.tables import Refuted, Tables
from jax_models import InputError, Transformer

Membership = Callable[[np.ndarray], bool]


def final_output(model: Transformer, top: Tables, claim: Claim) -> Enclosure:
    """Returns the final activation [d] of the query, one for all completions.

    Raises:
        Refuted: if it may differ between completions.
    """
    if claim.query not in top.deps:
        raise Refuted(f"the last layer does not list the query, position {claim.query}")
    rows = top.rows(claim.query)
    if len(set(top.identity[rows].tolist())) > 1:
        raise Refuted(
            "the output is not constant: the activation of the query depends on the "
            f"free bits {list(top.deps[claim.query])}"
        )
    values = top.values[rows][:1]
    if model.final_norm is not None:
        values = layer_norm(model.final_norm, values)
    return values[0]


def check_output(found: Enclosure, claim: Claim) -> None:
    """Checks the output of the certificate: equal where exact, else within rounding.

    Raises:
        Refuted: naming the coordinate that is wrong.
    """
    output = np.array(claim.output)
    if output.shape != found.centre.shape:
        raise Refuted(
            f"output has {len(output)} numbers; the activation has {len(found.centre)}"
        )
    wrong = np.flatnonzero(~(np.abs(output - found.centre) <= found.radius))
    if wrong.size:
        c = wrong[0]
        raise Refuted(
            f"output[{c}] = {output[c]!r}; the model gives {found.centre[c]!r} up to "
            f"{found.radius[c]:.2g}"
        )


def fill(claim: Claim, bit: int) -> np.ndarray:
    """Returns the completion of rho in which every free bit is the same [n]."""
    rho = np.array(claim.rho)
    return np.where(rho == FREE, claim.symbols[bit], rho)


def check_runs(model: Transformer, found: Enclosure, claim: Claim) -> None:
    """Runs the model on the pair, or on two completions where there is none.

    Raises:
        Refuted: if the two outputs differ in a bit or by the accept rule, or are not
            the output of the certificate.
    """
    strings = claim.pair or (fill(claim, 0), fill(claim, 1))
    output = np.array(claim.output)
    runs = []
    for string in strings:
        # The cells were enclosed before: nothing that decides the output is ambiguous.
        final = jm.apply(model, np.array(string, np.int32), ties="ignore")
        runs.append(final[claim.query])
        ran = np.asarray(final[claim.query], np.float64)
        near = np.abs(ran - output) <= 2 * found.radius
        if not near.all():
            raise Refuted(
                f"the model, run on {_show(string)}, does not give the output of the "
                f"certificate: coordinate {np.argmin(near)} is {ran[np.argmin(near)]!r}"
            )
    first, second = (np.asarray(run) for run in runs)
    if not np.array_equal(first, second):
        raise Refuted("the model, run on the pair, gives two outputs")
    if model.accept is not None and model.readout is not None:
        logits = [np.asarray(model.readout(run))[model.accept.class_] for run in runs]
        if len({bool(logit >= model.accept.threshold) for logit in logits}) > 1:
            raise Refuted("the model accepts one string of the pair and not the other")


def check_pair(claim: Claim, member: Membership | None) -> None:
    """Checks that the pair completes rho and that the language parts it.

    Args:
        claim: the certificate.
        member: the membership test; None takes that of the certificate's language.

    Raises:
        Refuted: if it does not, or if what is said of the members is wrong.
    """
    if claim.pair is None:
        if claim.members is not None:
            raise Refuted("members are given, but no pair")
        return
    for name, string in zip(("x", "x'"), claim.pair, strict=True):
        for place, (token, fixed) in enumerate(zip(string, claim.rho, strict=True)):
            allowed = claim.symbols if fixed == FREE else (fixed,)
            if token not in allowed:
                raise Refuted(
                    f"{name} of the pair has the token {token} at position {place}, "
                    f"where rho allows {' or '.join(map(str, allowed))}"
                )
    if claim.language is None:
        raise Refuted("there is a pair, but no language that it is of")
    if claim.members is None:
        raise Refuted("there is a pair, but it is not said which of it is a member")
    try:
        test = member or jm.get_language(claim.language).contains
        found = tuple(bool(test(np.array(string))) for string in claim.pair)
    except InputError as error:
        raise Refuted(f"membership in {claim.language!r}: {error}") from error
    if found != claim.members:
        raise Refuted(
            f"members = {list(claim.members)}; by the definition of {claim.language} "
            f"they are {list(found)}"
        )
    if found[0] == found[1]:
        both = "members" if found[0] else "no members"
        raise Refuted(f"both strings of the pair are {both}: it shows nothing")


def check_counts(claim: Claim) -> None:
    """Checks the number of free positions, and of inputs that are misclassified.

    2^F completions get one output; where the free bits are 0 and 1 and the pair is of
    PARITY, no other token stands among them, and half of the completions are members.

    Raises:
        Refuted: if a count is wrong.

    Source:
        docs/theory/hard-attention.md, section 2, Corollary 3.
    """
    free = len(claim.free_positions)
    if claim.free != free:
        raise Refuted(f"free = {claim.free}; rho leaves {free} positions free")
    halves = claim.language == "parity" and claim.pair is not None
    expected: Any = free - 1 if halves and sorted(claim.symbols) == [0, 1] else None
    if claim.log2_misclassified != expected:
        raise Refuted(
            f"log2_misclassified = {claim.log2_misclassified}; expected {expected}"
        )


def _show(string: Any) -> str:
    text = "".join(map(str, string)) if max(string) < 10 else " ".join(map(str, string))
    return text if len(text) <= 40 else text[:37] + "..."

"""The independent checker: a certificate and the model in, accepted or not out.

It shares no code with the search. Where it accepts, all completions of the restriction
have one final activation at the query, the position that is read; a certificate of a
counterexample holds a pair of completions too, a member and a non-member of a language. The
proof goes layer by layer, by tables of activations and their possible sets
(docs/certificates-of-restrictions.md, section 2); where rounding could decide anything, the
certificate is rejected. The pair is also run by the forward pass of `jax_models`.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

import jax_models as jm
from bounds.readings import unsupported_model, unsupported_operation
from bounds.restriction.checking.claim import FREE, TIES, Claim, decode_claim
from bounds.restriction.checking.enclosure import Enclosure, enclose
from bounds.restriction.checking.layer import check_layer
from bounds.restriction.checking.tables import Refuted, Tables, embed_tables
from jax_models import InputError, Transformer, model_bytes
from jax_models.arguments import show
from jax_models.format.model_check import check_model
from jax_models.model.rows.layer_norm import LayerNorm


def check_output(model: Transformer, top: Tables, claim: Claim) -> Enclosure:
    """Returns the query's final activation, if it is constant and as claimed."""
    if claim.query not in top.deps:
        raise Refuted(f"the last layer does not list the query, position {claim.query}")
    rows = top.rows(claim.query)
    # Rows of one identity are one vector.
    if len(set(top.identity[rows].tolist())) > 1:
        raise Refuted(
            "the output is not constant: the activation of the query depends on the "
            f"free bits {list(top.deps[claim.query])}"
        )
    values = top.values[rows][:1]
    if model.final_norm is not None:
        values = enclose(model.final_norm, values)
    found, output = values[0], np.array(claim.output)
    if output.shape != found.centre.shape:
        raise Refuted(
            f"output has {len(output)} numbers; the activation has {len(found.centre)}"
        )
    # Negated, so that a number that is NaN is refuted.
    wrong = np.flatnonzero(~(np.abs(output - found.centre) <= found.radius))
    if wrong.size:
        c = wrong[0]
        raise Refuted(
            f"output[{c}] = {float(output[c])}; the model gives "
            f"{found.centre[c].item()} up to {found.radius[c]:.2g}"
        )
    return found


def check_runs(model: Transformer, found: Enclosure, claim: Claim) -> None:
    """Checks that the model, run on the pair or two completions, gives the claimed output."""
    # Any two completions will do where there is no pair.
    rho = np.array(claim.rho)
    filled = [np.where(rho == FREE, symbol, rho).tolist() for symbol in claim.symbols]
    strings = claim.pair or filled
    output = np.array(claim.output)
    runs = []
    for string in strings:
        # The cells were enclosed before: nothing that decides the output is ambiguous.
        final = jm.apply(model, np.array(string, np.int32), ties="ignore")
        ran = np.asarray(final[claim.query], np.float64)
        runs.append(ran)
        # The claimed output and the run both lie within the radius of the centre.
        near = np.abs(ran - output) <= 2 * found.radius
        if not near.all():
            raise Refuted(
                f"the model, run on {show(list(string))}, does not give the output of the "
                f"certificate: coordinate {np.argmin(near)} is {ran[np.argmin(near)]!r}"
            )
    # Then an accept rule, which reads that activation, has one answer too.
    if not np.array_equal(*runs):
        raise Refuted("the model, run on the pair, gives two outputs")


def check_pair(claim: Claim) -> None:
    """Checks that the pair completes the restriction and has one member, as claimed."""
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
        language = claim.automaton or jm.get_language(claim.language)
        found = tuple(bool(language.contains(np.array(one))) for one in claim.pair)
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
    """Checks the claimed numbers of free positions and of misclassified inputs."""
    free = claim.rho.count(FREE)
    if claim.free != free:
        raise Refuted(f"free = {claim.free}; rho leaves {free} positions free")
    # 2^F completions get one output; where the free bits are 0 and 1 and the pair is of
    # PARITY, no other token stands among them, and half of the completions are members
    # (docs/theory/hard-attention.md, section 2, Corollary 3).
    halves = claim.language == "parity" and claim.pair is not None
    expected: Any = free - 1 if halves and sorted(claim.symbols) == [0, 1] else None
    if claim.log2_misclassified != expected:
        raise Refuted(
            f"log2_misclassified = {claim.log2_misclassified}; expected {expected}"
        )


@dataclasses.dataclass(frozen=True)
class Verification:
    """The checker's answer: why a certificate is rejected, or what it shows."""

    accepted: bool
    reasons: tuple[str, ...]


def check_certificate(
    model: Transformer, certificate: Mapping[str, Any]
) -> Verification:
    """Returns whether every claim of a certificate is verified for a model.

    Args:
        model: a hard-attention transformer in float64.
        certificate: the JSON object, as `read_certificate` returns it.

    Returns:
        The verification. Rejected: the first thing that is wrong; a malformed certificate
        is rejected with the entry that is. Accepted: what was verified.

    Raises:
        InputError: if the model is not one that certificates are of: a layer of soft
            attention, float32, or float64 without x64.

    Source:
        Hahn 2020, Theorem 1; docs/certificates-of-restrictions.md, section 2.
    """
    model = check_model(model)
    _require_certifiable(model)
    try:
        claim = decode_claim(certificate)
    except InputError as error:
        return Verification(False, (f"malformed: {error}",))
    try:
        check_header(model, claim)
        with np.errstate(over="ignore", invalid="ignore"):
            output, exact = _verify_tables(model, claim)
            if claim.mode == "exact" and not exact:
                raise Refuted("mode = 'exact', but float64 rounds some of its numbers")
            check_pair(claim)
            check_runs(model, output, claim)
            check_counts(claim)
    except InputError as refuted:
        return Verification(False, (str(refuted),))
    return Verification(True, _statements(claim, output, exact))


def _require_certifiable(model: Transformer) -> None:
    lack = unsupported_model(model) or unsupported_operation(model.layers, enclose)
    if not isinstance(model.final_norm, LayerNorm | None):
        lack = f"its final norm is {type(model.final_norm).__name__}, not LayerNorm"
    if lack:
        raise InputError(f"the checker cannot follow the model: {lack}")
    for depth, layer in enumerate(model.layers):
        name = layer.attention.weighting.name
        if name not in TIES:
            raise InputError(
                f"layer {depth} has {name} attention; a restriction is certified for "
                f"{', '.join(TIES)} only"
            )
    if model.dtype != np.float64:
        raise InputError(
            f"the model is in {model.dtype}; certificates are of float64 models, whose "
            "rounding they enclose: convert it with jax_models.with_dtype"
        )


def check_header(model: Transformer, claim: Claim) -> None:
    """Checks a certificate's entries on the model, the restriction and tokens."""
    attentions = [layer.attention for layer in model.layers]
    digest = hashlib.sha256(model_bytes(model)).hexdigest()
    if claim.model_digest != digest:
        raise Refuted(
            f"it is of another model: model_digest = {claim.model_digest[:64]!r}, this "
            f"model has {digest!r}"
        )
    if len(claim.layers) != len(attentions):
        raise Refuted(f"L = {len(claim.layers)}; the model has {len(attentions)}")
    for name, claimed, found in (
        ("H", claim.heads, [attention.num_heads for attention in attentions]),
        ("tie", claim.ties, [TIES[one.weighting.name] for one in attentions]),
        ("mask", claim.masks, [attention.mask for attention in attentions]),
    ):
        for depth, (said, has) in enumerate(zip(claimed, found, strict=True)):
            if said != has:
                raise Refuted(
                    f"{name} = {said!r} in layer {depth}; the model has {has!r}"
                )
    first, second = claim.symbols
    if first == second:
        raise Refuted(f"symbols = {[first, second]}; expected two different tokens")
    largest = model.vocab_size - 1
    for name, tokens in (("symbols", claim.symbols), ("rho", claim.rho)):
        if max(tokens) > largest:
            raise Refuted(f"{name} has the token {max(tokens)}; the last is {largest}")


def _verify_tables(model: Transformer, claim: Claim) -> tuple[Enclosure, bool]:
    """Checks all layers; returns the query's final activation, and whether all is exact."""
    tables, exact = embed_tables(model, claim), True
    both = zip(model.layers, claim.layers, strict=True)
    for depth, (layer, claims) in enumerate(both):
        if not claims:
            raise Refuted(f"layer {depth} lists no position")
        try:
            tables, scored = check_layer(layer, tables, claims)
        except Refuted as refuted:
            raise Refuted(f"layer {depth}: {refuted}") from None
        exact &= scored and tables.values.exact
    output = check_output(model, tables, claim)
    return output, exact and output.exact


def _statements(claim: Claim, output: Enclosure, exact: bool) -> tuple[str, ...]:
    """Sentences on the facts that an accepted certificate shows."""
    free = claim.rho.count(FREE)
    # A model that decides at its last position may well be right there.
    last = claim.query == claim.length - 1
    read = "" if last else f", read at position {claim.query},"
    found = [
        f"all 2^{free} completions have one final activation at position {claim.query}",
        "all arithmetic is exact"
        if exact
        else "rounding is enclosed: it decides no attention and moves the output by at "
        f"most {float(output.radius.max(initial=0.0)):.2g}",
    ]
    if claim.pair is not None:
        found.append(
            f"the model{read} gives one output to a member and a non-member of "
            f"{claim.language}"
        )
    if claim.log2_misclassified is not None:
        found.append(
            f"at least 2^{claim.log2_misclassified} inputs are misclassified"
            f"{read.removesuffix(',')}"
        )
    return tuple(found)

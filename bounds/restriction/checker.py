"""The independent checker: a certificate and the model in, accepted or not out.

It shares no code with the search. Where it accepts, all 2^F completions of the
restriction have one final activation at the query, and the pair, if there is one, is of
a member and a non-member of the language: at least one of them is misclassified.

The proof goes layer by layer (docs/certificates-of-restrictions.md, section 2). The tables
of y^(0) follow from the restriction. For each listed row and head a witness is seen whose
cell is at least g under every completion; whoever is not in the possible set stays below g,
or loses the tie. So the tables of the next layer follow from the possible sets alone. A
machine's rounding is enclosed (`checking.enclosure`): where it could decide something,
the certificate is rejected.
"""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bounds.restriction.checking.claim import (
    TIES,
    Claim,
    decode_claim,
    read_certificate,
)
from bounds.restriction.checking.enclosure import Enclosure
from bounds.restriction.checking.layer import check_layer
from bounds.restriction.checking.outcome import (
    Membership,
    check_counts,
    check_output,
    check_pair,
    check_runs,
    final_output,
)
from bounds.restriction.checking.tables import Identities, Refuted, embed_tables
from jax_models import InputError, Transformer, model_bytes
from jax_models.model_check import check_model

__all__ = ["Verification", "check_certificate", "read_certificate"]


@dataclasses.dataclass(frozen=True)
class Verification:
    """The checker's answer: why a certificate is rejected, or what it shows."""

    accepted: bool
    reasons: tuple[str, ...]


def check_certificate(
    model: Transformer,
    certificate: Mapping[str, Any],
    *,
    member: Membership | None = None,
) -> Verification:
    """Returns whether everything a certificate says is true, or cannot be shown.

    Args:
        model: a hard-attention transformer in float64.
        certificate: the JSON object, as `read_certificate` returns it.
        member: a membership test of token arrays [n] -> bool, for a language that
            `jax_models.LANGUAGES` does not hold; it decides about the pair then.

    Returns:
        The verification. Rejected: what is wrong, first what makes the rest moot; a
        malformed certificate is rejected with the entry that is. Accepted: what was
        verified.

    Raises:
        InputError: if the model is not one that certificates are of: a layer of soft
            attention, float32, or float64 without x64.

    Source:
        Hahn 2020, Theorem 1; docs/certificates-of-restrictions.md, section 2.
    """
    model = check_model(model)
    _require_hard_float64(model)
    try:
        claim = decode_claim(certificate)
    except InputError as error:
        return Verification(False, (f"malformed: {error}",))
    wrong = _header_faults(model, claim)
    if wrong:
        return Verification(False, tuple(wrong))
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            output, exact = _verify_tables(model, claim)
            if claim.mode == "exact" and not exact:
                wrong.append("mode = 'exact', but float64 rounds some of its numbers")
        except (Refuted, InputError) as refuted:
            output, exact = None, False
            wrong.append(str(refuted))
        wrong += _outcome_faults(model, claim, output, member)
    if wrong or output is None:
        return Verification(False, tuple(wrong))
    return Verification(True, _statements(claim, output, exact))


def _require_hard_float64(model: Transformer) -> None:
    if model.dtype != np.float64:
        raise InputError(
            f"the model is in {model.dtype}; certificates are of float64 models, whose "
            "rounding they enclose: convert it with jax_models.with_dtype"
        )
    for depth, layer in enumerate(model.layers):
        name = layer.attention.weighting.name
        if name not in TIES:
            raise InputError(
                f"layer {depth} has {name} attention; a restriction is certified for "
                f"{', '.join(TIES)} only"
            )


def _header_faults(model: Transformer, claim: Claim) -> list[str]:
    """Returns what a certificate says wrongly of the model, the restriction or a token."""
    attentions = [layer.attention for layer in model.layers]
    faults = []
    digest = hashlib.sha256(model_bytes(model)).hexdigest()
    if claim.model_digest != digest:
        faults.append(
            f"it is of another model: model_digest = {claim.model_digest[:64]!r}, this "
            f"model has {digest!r}"
        )
    if claim.num_layers != len(attentions):
        return [*faults, f"L = {claim.num_layers}; the model has {len(attentions)}"]
    for name, claimed, found in (
        ("H", claim.heads, [attention.num_heads for attention in attentions]),
        ("tie", claim.ties, [TIES[one.weighting.name] for one in attentions]),
        ("mask", claim.masks, [attention.mask for attention in attentions]),
    ):
        for depth, (said, has) in enumerate(zip(claimed, found, strict=True)):
            if said != has:
                faults.append(
                    f"{name} = {said!r} in layer {depth}; the model has {has!r}"
                )
    first, second = claim.symbols
    if first == second:
        faults.append(f"symbols = {[first, second]}; expected two different tokens")
    largest = model.vocab_size - 1
    for name, tokens in (("symbols", claim.symbols), ("rho", claim.rho)):
        if max(tokens) > largest:
            faults.append(f"{name} has the token {max(tokens)}; the last is {largest}")
    return faults


def _verify_tables(model: Transformer, claim: Claim) -> tuple[Enclosure, bool]:
    """Returns the one final activation at the query, and whether all was exact.

    Raises:
        Refuted: at the first thing that does not hold, by layer.
    """
    identities = Identities()
    tables = embed_tables(model, claim, identities)
    exact = True
    for depth, (layer, claims) in enumerate(
        zip(model.layers, claim.layers, strict=True)
    ):
        tie = claim.ties[depth]
        if not claims:
            raise Refuted(f"layer {depth} lists no position")
        try:
            tables, scored = check_layer(
                layer, tables, claims, tie, claim.length, identities
            )
        except Refuted as refuted:
            raise Refuted(f"layer {depth}: {refuted}") from None
        exact &= scored and tables.values.exact
    output = final_output(model, tables, claim)
    check_output(output, claim)
    return output, exact and output.exact


def _outcome_faults(
    model: Transformer,
    claim: Claim,
    output: Enclosure | None,
    member: Membership | None,
) -> list[str]:
    """Returns what is wrong with runs, pair and counts, each checked for itself."""
    faults = []

    def note(check: Any, *given: Any) -> None:
        try:
            check(*given)
        except (Refuted, InputError) as refuted:
            faults.append(str(refuted))

    note(check_pair, claim, member)
    if output is not None and not faults:
        note(check_runs, model, output, claim)
    note(check_counts, claim)
    return faults


def _statements(claim: Claim, output: Enclosure, exact: bool) -> tuple[str, ...]:
    """Returns what an accepted certificate shows."""
    free = len(claim.free_positions)
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

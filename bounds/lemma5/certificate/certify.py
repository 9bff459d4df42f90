"""`certify_influence`: checks the question, chooses the method, gathers its blocks."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bounds.influence.build import build_request
from bounds.influence.request import InfluenceRequest
from bounds.influence.substitution import Symbols
from bounds.influence.targets.base import PlainTarget
from bounds.influence.vanishing import refuse_vanishing_rows
from bounds.lemma5.certificate.activation_ball import slope_strays
from bounds.lemma5.certificate.constants import needs_positive_epsilon
from bounds.lemma5.certificate.order import least
from bounds.lemma5.certificate.references import (
    DD_BASE,
    DD_CENTRED,
    Certificate,
    CertificateMethod,
    Certifier,
)
from bounds.lemma5.certificate.scores import score_rule
from bounds.lemma5.certificate.sections import sections
from bounds.lemma5.constants import closed_form_bounds
from bounds.lemma5.constants.head import is_one_map, read_head
from bounds.numbers.bound import Bound
from bounds.readings.rules import unsupported_model, unsupported_operation
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name, expect_hook
from jax_models.model.reweight import with_dtype
from jax_models.model.rows import Norm
from jax_models.run.float_type import check_float_type

CERTIFIERS: dict[str, Certifier] = {x.name: x for x in (DD_CENTRED, DD_BASE)}
_ROUNDING = (
    "float64 arithmetic with correctly rounded operations, elementary functions right to "
    "8 u (erfc to 20 u), no underflow; roundings of roundings are left out "
    "(docs/certificates.md, section 7)"
)


# Closed forms take the differences of all pairs of symbols: this many numbers take about
# a second, more are not worth it.
MOST_DIFFERENCES = 2**24


def bound_all_inputs(
    request: InfluenceRequest, alone: Float[np.ndarray, "substitutions"]
) -> tuple[Float[np.ndarray, "substitutions"], Bound | None]:
    """The smaller of `alone` and the closed form, and the latter where it is smaller."""
    model, pairs = request.model, request.pairs
    if not len(pairs) or model.vocab_size * model.embedding.size > MOST_DIFFERENCES:
        return alone, None
    asked = {"query": request.query, "target": request.target}
    try:
        form = closed_form_bounds(model, request.tokens.size, **asked).corrected
    except (InputError, ArithmeticError):  # refused, or beyond what it computes with
        return alone, None
    at_query = pairs.position == request.query
    bound = np.where(at_query, form.own.value, form.others.value)
    if model.substitutable is not None:  # distances of embeddings are among these alone
        exchanged = [request.tokens[pairs.position], pairs.symbol]
        bound[~np.isin(exchanged, model.substitutable).all(axis=0)] = np.inf
    upper = np.asarray(least(jnp.asarray(alone), jnp.asarray(bound)))
    return upper, form.others if (upper < alone).any() else None


def certify_influence(
    model: Transformer,
    tokens: Any,
    *,
    method: CertificateMethod = "centred",
    query: int | None = None,
    target: PlainTarget = "activation",
    symbols: Symbols | None = None,
    positions: Sequence[int] | None = None,
    include_query: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Certificate:
    """Returns certified upper bounds on the influence of single-symbol substitutions.

    influence(i, s) = |y_q(x with x_i := s) - y_q(x)|_2 for this input x, in the units of
    the activations (or of the logits). "centred" follows every row's change through the
    first layer exactly, is exact for one and two layers, and bounds what deeper layers
    add; one substitution costs O(n) for one layer, O(n d) for two, and two products of
    an n x n matrix with a vector per head and layer beyond that. "base" knows only how
    far the embedding moves: one certificate per position, far looser. Where the closed
    form for all inputs (`closed_form_bounds`, corrected) is smaller, it is the bound.

    Args:
        model: a transformer whose layers all have softmax weighting. A float32 model is
            taken as the same real numbers; everything is computed in float64.
        tokens: integers in [0, V) [n].
        method: "centred" or "base".
        query: the row that is watched, negative counting from the end; by default that of a
            classifier's head, else the last.
        target: "activation" (final activations) or "logits".
        symbols: substitute symbols; by default all that the model's `substitutable`
            allows. Or [P, K] padded with -1: row p are those of the p-th of P positions.
        positions: positions that are changed; all by default.
        include_query: whether the query's own token is changed too.
        progress: called with (substitutions done, all) after every block.

    Returns:
        A `Certificate`. Where a number overflows on the way nothing is certified, and
        the bound is +inf, or what a final norm lets through whatever enters it.

    Raises:
        InputError: for hard weightings, a layer norm with epsilon = 0 where a Lipschitz
            constant is needed, x64 not enabled, and anything in the question that does
            not fit the model.

    Source:
        Hahn 2020, Lemma 5, made explicit for one input; docs/certificates.md.
    """
    started = time.perf_counter()
    choose_name("method", method, tuple(CERTIFIERS))
    choose_name("target", target, get_args(PlainTarget))
    expect_hook("progress", progress)
    model = _in_float64(model)
    _refuse(model, method)
    request = build_request(
        model,
        tokens,
        query=query,
        target=target,
        symbols=symbols,
        positions=positions,
        include_query=include_query,
    )
    refuse_vanishing_rows(request)
    pairs, certified, head = request.pairs, request, None
    if target == "logits" and not is_one_map(model):
        # What the final activation moves by at most, and the head's constants of that.
        certified = dataclasses.replace(request, target="activation")
        head = read_head(model)
    certifier, found, done = CERTIFIERS[method], [], 0
    for block in certifier.blocks(certified) if len(pairs) else ():
        found.append(block if head is None else head.moved(block))
        done += block.size
        if progress is not None:
            progress(done, len(pairs))
    alone = np.concatenate(found) if found else np.zeros(0)
    upper, form = bound_all_inputs(request, alone)
    stated, source = _hypotheses(model), certifier.source
    if form is not None:
        stated = tuple(dict.fromkeys(stated + form.hypotheses))
        source += f"; {form.source}"
    by_position = np.full(request.tokens.size, np.nan)
    np.fmax.at(by_position, pairs.position, upper)
    best = int(np.argmax(upper)) if upper.size else None
    return Certificate(
        upper=pairs.scatter(upper),
        input_upper=pairs.scatter(alone),
        position_upper=by_position,
        max_upper=0.0 if best is None else float(upper[best]),
        position=None if best is None else int(pairs.position[best]),
        symbol=None if best is None else int(pairs.symbol[best]),
        query=request.query,
        target=target,
        method=method,
        hypotheses=stated,
        source=source,
        substitutions=len(pairs),
        seconds=time.perf_counter() - started,
    )


def _in_float64(model: Transformer) -> Transformer:
    check_float_type(jnp.float64, "every certificate")
    return with_dtype(model, jnp.float64)


def _refuse(model: Transformer, method: str) -> None:
    for depth, layer in enumerate(model.layers):
        if layer.attention.weighting.hard:
            raise InputError(
                f"layer {depth} has the weighting {layer.attention.weighting.name}; a "
                "certificate needs softmax, since a hard weighting jumps; use "
                "compute_influence, which is exact"
            )
        score_rule(layer.attention.scoring)  # refuses scores that it knows nothing of
    lack = unsupported_model(model)
    if lack := lack or unsupported_operation(model.layers, slope_strays, Norm):
        raise InputError(f"a certificate cannot follow the model: {lack}")
    for layer in model.layers:
        sections(layer)  # refuses a program that it does not follow
    exact = method == "centred" and len(model.layers) == 1
    norm = None if exact else needs_positive_epsilon(model)
    if norm is not None:
        raise InputError(
            f"{norm} has epsilon = 0 and so no Lipschitz constant; give it a positive "
            "epsilon, or use compute_influence"
        )


def _hypotheses(model: Transformer) -> tuple[str, ...]:
    """Hypotheses of a certificate."""
    stated = ["all layers have softmax weighting", _ROUNDING]
    if any(isinstance(x, Norm) for layer in model.layers for x in layer.operations):
        stated.append("every layer norm has epsilon > 0")
    return tuple(stated)

"""`certify_influence`, and the two references around which it bounds changes.

A substitution replaces one token of the input; its influence is the norm of the change of
the query row's output. A row's change is known by a centre, a computed vector, and a radius,
an upper bound on the distance of the true change from it. Method "base": the base pass, on
the unchanged input, is the reference in every layer. The substituted row starts with a
radius, the largest distance of a substitute's embedding, all others with none; one
certificate serves every symbol at a position. Method "centred": every row's change after the
first layer is known exactly. One layer is exact, and so are two: the last layer's query row
is followed with all rows at their centres. From the third layer on the middle layers leave
radii.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from bounds.influence.build import build_request
from bounds.influence.request import InfluenceRequest
from bounds.influence.substitution import Symbols, padded
from bounds.influence.targets.base import PlainTarget
from bounds.influence.vanishing import refuse_vanishing_rows
from bounds.lemma5.certificate.base_pass import exact_without_layers, prepare_pass
from bounds.lemma5.certificate.norm_gain import slope_strays
from bounds.lemma5.certificate.order import least
from bounds.lemma5.certificate.pointwise import OwnMove
from bounds.lemma5.certificate.scores import score_rule
from bounds.lemma5.constants import closed_form_bounds
from bounds.lemma5.constants.model_constants import is_one_map, read_head
from bounds.numbers.bound import Bound, Sense, directed
from bounds.numbers.kind import Kind, OfKind
from bounds.numbers.norms import scaled_norm
from bounds.readings import unsupported_model, unsupported_operation
from jax_models import InputError, Transformer
from jax_models.arguments import choose_name
from jax_models.jax_arguments import check_float_type
from jax_models.model.attention import WINDOW
from jax_models.model.layer import FeedForward, Layer
from jax_models.model.reweight import with_dtype
from jax_models.model.rows import Norm

CertificateMethod = Literal["centred", "base"]


@dataclasses.dataclass(frozen=True)
class Certificate(OfKind):
    """Certified upper bounds on single-symbol influences on one input.

    Each is the smaller of the certificate of this input alone and the closed form for
    all inputs of the length. Every number is at least |y_q(x with x_i := s) - y_q(x)|_2
    of the model in real arithmetic, rounding included. It is +inf where nothing is
    certified, because numbers on the way have overflowed or rounding has no bound; a
    final norm's own bound stands even then.
    """

    upper: Float[np.ndarray, "tokens symbols"]  # NaN where nothing is substituted
    # By the certificate of this input alone.
    input_upper: Float[np.ndarray, "tokens symbols"]
    position_upper: Float[np.ndarray, "tokens"]  # maxima over symbols, NaN where none
    max_upper: float  # over all substitutions, 0 where there are none
    position: int | None  # the smallest (position, symbol) of the maximum
    symbol: int | None
    query: int
    target: PlainTarget
    method: CertificateMethod
    hypotheses: tuple[str, ...]
    source: str
    substitutions: int
    kind: Kind = "certified"

    @property
    def uncertified(self) -> int:
        """Number of substitutions whose bound is +inf, so that nothing is certified."""
        return int(np.isposinf(self.upper).sum())

    @property
    def basis(self) -> str:
        """Origin of `max_upper`: "this input", or the closed form for "all inputs"."""
        if self.position is None:
            return "this input"
        at = self.position, self.symbol
        return "all inputs" if self.upper[at] < self.input_upper[at] else "this input"

    def __repr__(self) -> str:
        """One line: the maximum, where it is, and how it was certified."""
        lost = self.uncertified
        return (
            f"Certificate(max_upper={directed(self.max_upper, '.6g', Sense.UPPER)}, "
            f"basis={self.basis!r}, position={self.position}, "
            f"symbol={self.symbol}, query={self.query}, method={self.method!r}, "
            f"substitutions={self.substitutions}"
            + (f", nothing is certified for {lost} of them)" if lost else ")")
        )


# What a method bounds changes around.
REFERENCES = {"centred": "exact changes", "base": "the base"}


def _bounds(
    request: InfluenceRequest, method: CertificateMethod
) -> Float[np.ndarray, "substitutions"]:
    """Upper bounds on the influences of one or more substitutions, from this input alone."""
    model, positions = request.model, request.position
    if not model.layers:
        return exact_without_layers(request)
    table, held = np.asarray(model.embedding), prepare_pass(request)

    def embedding_change(part: Any) -> Float[np.ndarray, "substitutions width"]:
        # An infinite change is reported as an overflow.
        with np.errstate(over="ignore"):
            old = table[request.tokens[request.position[part]]]
            return table[request.symbol[part]] - old

    # The embedding's change is one subtraction; its rounding is in the layer's.
    centres: Any = embedding_change
    radii, certificate = np.zeros(positions.size), np.arange(positions.size)
    if method == "base":
        distance = np.asarray(scaled_norm(jnp.asarray(centres(slice(None)))))
        # One certificate serves all symbols of a position: the farthest embedding is
        # its radius.
        unique = np.unique(positions, return_index=True, return_inverse=True)
        positions, starts, certificate = unique
        radii = np.maximum.reduceat(distance, starts)
        centres = np.zeros((positions.size, model.width)).__getitem__
    # With one layer the query vector moves under substitutions of the query's own token
    # alone, so these have blocks of their own.
    apart = (positions == request.query) & (len(model.layers) == 1)
    found = np.zeros(positions.size)
    for at_query, size in ((False, held.batch), (True, min(held.batch, 16))):
        chosen = np.flatnonzero(apart == at_query)
        for start in range(0, chosen.size, size):
            part = chosen[start : start + size]
            moved = positions[part], centres(part), radii[part]
            own = (jnp.asarray(padded(x, size)) for x in moved)
            upper = held.certify(request.target, OwnMove(*own), at_query)
            found[part] = np.asarray(upper)[: part.size]
    return found[certificate]


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
    """Minima of `alone` and Lemma 5's bound for all inputs; that bound, None if not used."""
    model, pairs = request.model, request.pairs
    if not len(pairs) or model.vocab_size * model.embedding.size > MOST_DIFFERENCES:
        return alone, None
    asked = {"query": request.query, "target": request.target}
    try:
        form = closed_form_bounds(model, request.tokens.size, **asked).corrected
    except (InputError, ArithmeticError):  # refused, or beyond what it computes with
        return alone, None
    # Lemma 5 bounds the substituted row itself by another form, for the query's own
    # token.
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
        query: watched row, from either end; by default that of a head, else the last.
        target: "activation" (final activations) or "logits".
        symbols: substitute symbols; by default all that the model's `substitutable`
            allows. Or [P, K] padded with -1: row p are those of the p-th of P positions.
        positions: positions that are changed; all by default.
        include_query: whether the query's own token is changed too.

    Returns:
        A `Certificate`. Where a number overflows on the way nothing is certified, and
        the bound is +inf, or what a final norm lets through whatever enters it.

    Raises:
        InputError: for hard weightings, scores or row operations without a rule, a layer
            norm with epsilon = 0 where a Lipschitz constant is needed, x64 not enabled,
            and arguments that are unknown or do not fit the model.

    Source:
        Hahn 2020, Lemma 5, made explicit for one input; docs/certificates.md.
    """
    choose_name("method", method, get_args(CertificateMethod))
    choose_name("target", target, get_args(PlainTarget))
    check_float_type(jnp.float64, "every certificate")
    # A model of float32 is taken as the same real numbers.
    model = with_dtype(model, jnp.float64)
    _refuse(model, method)
    asked: Any = {"query": query, "target": target, "include_query": include_query}
    asked |= {"symbols": symbols, "positions": positions}
    request = build_request(model, tokens, **asked)
    refuse_vanishing_rows(request)
    pairs, certified, head = request.pairs, request, None
    if target == "logits" and not is_one_map(model):
        # What the final activation moves by at most, and the head's constants of that.
        certified = dataclasses.replace(request, target="activation")
        head = read_head(model)
    alone = _bounds(certified, method) if len(pairs) else np.zeros(0)
    if head is not None:
        alone = head.moved(alone)
    upper, form = bound_all_inputs(request, alone)
    stated = ("all layers have softmax weighting", _ROUNDING)
    if any(isinstance(x, Norm) for layer in model.layers for x in layer.operations):
        stated += ("every layer norm has epsilon > 0",)
    source = (
        "Hahn 2020, Lemma 5, made explicit for one input: docs/certificates.md, section 6, "
        f"the certificate around {REFERENCES[method]}"
    )
    if form is not None:
        stated = tuple(dict.fromkeys(stated + form.hypotheses))
        source += f"; {form.source}"
    table, largest = pairs.scatter(upper), (0.0, None, None)
    if upper.size:
        best = int(np.argmax(upper))
        where = int(pairs.position[best]), int(pairs.symbol[best])
        largest = float(upper[best]), *where
    return Certificate(
        table,
        pairs.scatter(alone),
        # fmax passes over NaN, where nothing is substituted.
        np.fmax.reduce(table, axis=1),
        *largest,
        query=request.query,
        target=target,
        method=method,
        hypotheses=stated,
        source=source,
        substitutions=len(pairs),
    )


def _refuse(model: Transformer, method: str) -> None:
    for depth, layer in enumerate(model.layers):
        # Sections, and the roundings that are counted in them, are of these programs.
        kinds = {type(layer): Layer, type(layer.feed_forward): FeedForward}
        if own := [x.__name__ for x, known in kinds.items() if x is not known]:
            raise InputError(
                f"layer {depth} has a program of its own, {own[0]}, and a "
                "certificate follows those of model files; use compute_influence"
            )
        if layer.attention.weighting.hard:
            raise InputError(
                f"layer {depth} has the weighting {layer.attention.weighting.name}; a "
                "certificate needs softmax, since a hard weighting jumps; use "
                "compute_influence, which is exact"
            )
        score_rule(layer.attention.scoring)  # refuses scores that it knows nothing of
    lack = unsupported_model(model, known=(WINDOW,))
    if lack := lack or unsupported_operation(model.layers, slope_strays, Norm):
        raise InputError(f"a certificate cannot follow the model: {lack}")
    # One layer around exact changes meets no radius, and needs no Lipschitz constant.
    if method == "centred" and len(model.layers) == 1:
        return
    norms = {"the final norm": model.final_norm}
    for depth, layer in enumerate(model.layers):
        norms[f"norm1 of layer {depth}"] = layer.norm1
        norms[f"norm2 of layer {depth}"] = layer.norm2
    for name, norm in norms.items():
        if norm is not None and norm.epsilon == 0:
            raise InputError(
                f"{name} has epsilon = 0 and so no Lipschitz constant; give it a "
                "positive epsilon, or use compute_influence"
            )

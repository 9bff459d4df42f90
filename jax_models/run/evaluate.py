"""Evaluation of models with checked inputs: activations, logits and acceptance."""

import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer
from jax.sharding import Mesh

from jax_models.arguments import (
    choose_name,
    expect_integer,
)
from jax_models.errors import InputError, TieError
from jax_models.format.model_check import check_model
from jax_models.model.readout import Readout
from jax_models.model.rows import Affine
from jax_models.model.transformer import (
    Transformer,
    check_tokens,
    forward,
    read_logits,
)
from jax_models.run.sharded_forward import forward_sharded
from jax_models.weighting import TieReport, Weighting

TieRule = Literal["error", "warn", "ignore"]


class AmbiguousTieWarning(UserWarning):
    """Warning that rounding could change which key a hard-attention row selects."""


def describe_tie(
    weightings: Sequence[Weighting],
    # the row's best score
    best: float,
    # the best score below its cell
    next_: float,
    dtype: Any,
) -> str:
    """Returns a message: why rounding may decide an ambiguous row's winner, and remedies."""

    def cells_per_rounding(weighting: Weighting) -> float:
        return weighting.score_roundoff(dtype) / weighting.resolution(dtype)

    # Of several layers the one whose cells are narrowest beside its rounding.
    finest = max(weightings, key=cells_per_rounding)
    rounding = finest.score_roundoff(dtype) * abs(best)
    width = finest.resolution(dtype)
    if rounding < width:
        return (
            f"the best score {best!r} and the next {next_!r} stand in neighbouring "
            "score cells, so rounding decides the winner; widen or shrink "
            "tie_resolution, or pass ties='warn'"
        )
    wider = "" if jnp.finfo(dtype).bits == 64 else "use float64, or "
    return (
        f"the best score {best!r} may be rounded by {rounding:.2g}, and a score cell "
        f"is no wider than that (tie_resolution = {width:g}), so rounding decides which "
        f"scores are tied; {wider}set the model's tie_resolution above {rounding:.2g}, "
        "or pass ties='warn'"
    )


def check_ties(
    model: Transformer, reports: tuple[TieReport | None, ...], ties: TieRule
) -> None:
    """Raises `TieError` or warns, by `ties`, if a layer's report has an ambiguous row."""
    choose_name("ties", ties, get_args(TieRule))
    if ties == "ignore":
        return
    for depth, report in enumerate(reports):
        if report is None or not bool(report.ambiguous):
            continue
        high, low = (float(score) for score in report.scores)
        weighting = model.layers[depth].attention.weighting
        why = describe_tie([weighting], high, low, model.dtype)
        message = f"layer {depth}, row {int(report.row)}: {why}"
        if ties == "error":
            raise TieError(message)
        warnings.warn(message, AmbiguousTieWarning, stacklevel=3)


_forward = jax.jit(forward)


def apply(
    model: Transformer,
    tokens: Any,
    *,
    ties: TieRule = "error",
    mesh: Mesh | None = None,
) -> Array:
    """Returns the final activations y^(L) of a token sequence.

    Runs by blocks: memory is O(n d) beside one tile of scores, time O(n^2 d). On a mesh
    each of D devices has 1/D of both. No other row attends to the rows of `padding` symbols
    behind the last token; their own activations have no meaning.

    Args:
        model: the transformer.
        tokens: integers in [0, V) [n].
        ties: what to do about a hard-attention row whose winner rounding could change:
            "error", "warn" or "ignore". Under a JAX transformation nothing is raised.
        mesh: devices to share rows and keys out over (`device_mesh`), in one process or,
            if all of them call this alike, in many; by default one device.

    Returns:
        Activations [n, d], whole on one device.

    Raises:
        InputError: for tokens that do not fit the model, a length beyond its position
            table, a float64 model without x64, padding on a mesh, a mesh under a JAX
            transformation.
        TieError: for an ambiguous tie under ties="error".
    """
    model = check_model(model)
    tokens = check_tokens(model.vocab_size, tokens)
    there: Any = tokens
    # Only where tokens are known; this also refuses padding before a token.
    if model.padding is not None and not isinstance(tokens, Tracer):
        there = model.padding.leave(np.asarray(tokens))
    if mesh is None:
        y, reports = _forward(model, tokens)
    elif there.size < tokens.size:
        raise InputError(
            "tokens end with padding, which is not shared out over devices; leave it out"
        )
    else:
        y, reports = forward_sharded(model, tokens, mesh)
    # Under a transformation the report has no values yet.
    if not isinstance(y, Tracer):
        check_ties(model, reports, ties)
    return y


def apply_logits(
    model: Transformer,
    tokens: Any,
    *,
    ties: TieRule = "error",
    mesh: Mesh | None = None,
) -> Array:
    """Returns the read-out's logits at every position [n, classes].

    Args:
        model: a transformer with a read-out.
        tokens: integers in [0, V) [n].
        ties: as in `apply`.
        mesh: as in `apply`.

    Returns:
        Logits [n, classes].

    Raises:
        InputError: if the model has no read-out, and as in `apply`.
        TieError: as in `apply`.
    """
    model = check_model(model)
    require_readout(model, "jax_models.apply gives the final activations")
    return read_logits(model, apply(model, tokens, ties=ties, mesh=mesh))


def require_readout(
    model: Transformer,
    remedy: str = 'ask for the final activations instead (target="activation")',
) -> None:
    """Raises `InputError`, with `remedy` in the message, for a model without a read-out."""
    if model.readout is None:
        raise InputError(
            f"the model has no read-out (readout.weight), so it has no logits; {remedy}"
        )


def linear_readout(model: Transformer) -> Readout:
    """Returns the read-out of a model whose head is one affine map; refuses other heads."""
    require_readout(model)
    operations = [step.operation for step in model.head.steps]
    match operations:
        case [Affine(weight, bias)]:
            return Readout(weight, bias)
    named = ", ".join(type(x).__name__ for x in operations)
    raise InputError(
        f"the model's head is made of {named or 'nothing'}; expected one Affine map, such "
        'as a read-out: ask for target="activation", or use compute_influence'
    )


def accepts(model: Transformer, tokens: Any, *, query: int = -1) -> bool:
    """Returns whether the model accepts a string by its `accept` rule.

    Args:
        model: a transformer with a read-out and an accept rule.
        tokens: integers in [0, V) [n].
        query: the position whose logits are read, by default the last.

    Raises:
        InputError: if the model has no accept rule, for a position out of range, and as
            in `apply_logits`.
        TieError: for an ambiguous tie.
    """
    model = check_model(model)
    if model.accept is None:
        raise InputError("the model has no accept rule, so it accepts no language")
    logits = apply_logits(model, tokens)
    query = expect_integer("query", query, -len(logits), len(logits) - 1)
    return bool(logits[query, model.accept.class_] >= model.accept.threshold)

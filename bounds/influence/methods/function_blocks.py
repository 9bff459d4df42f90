"""Influences on a caller's function of the tokens: it is called for every changed input.

Changed inputs have one token replaced (a substitution) each; influences are norms of
the changes of the function's result. A row is a token position of the result. The
effect of rounding on such a function is seen where its parameters can be moved, or
where the caller states a radius r(x) of each evaluation, |f(x) - true f(x)|_2 <= r(x).
"""

import dataclasses
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, Shaped

from bounds.influence.inputs.callable import (
    INPUTS_AT_ONCE,
    Callable,
    Radius,
    check_radius,
)
from bounds.influence.request import InfluenceRequest
from bounds.influence.result import Block
from bounds.influence.table.layout import choose
from bounds.numbers.rounding import SCALAR_STEPS, gamma_upper
from jax_models import InputError

# What a float64 product can lose to underflow.
SMALLEST = float(np.finfo(np.float64).smallest_subnormal)


@dataclasses.dataclass(frozen=True)
class FunctionBase:
    """Results of a caller's function for the unchanged input, and their properties."""

    found: Shaped[np.ndarray, "*watched classes"]  # of the function's own type
    outputs: Float[np.ndarray, "watched classes"]  # the same in float64
    by_row: bool  # whether each row has a result
    deterministic: bool  # whether a second call for the input gives the same


def function_base(request: InfluenceRequest) -> FunctionBase:
    """Cached `FunctionBase`; if `model.check`, lone and batched calls are compared first."""
    return request.shared.find(request, lambda: _form_base(request))


def _form_base(request: InfluenceRequest) -> FunctionBase:
    model, rows = request.model, request.rows
    inputs = request.tokens[None]
    if model.check:  # with substitutions from everywhere
        count = min(len(request.pairs), INPUTS_AT_ONCE - 1)
        chosen = np.linspace(0, max(len(request.pairs) - 1, 0), count).astype(np.int64)
        inputs = np.concatenate([inputs, changed_inputs(request, chosen)])
    raw = model.batch(inputs, rows)
    found = _by_row(raw)
    if not np.isfinite(found[0]).all():
        raise InputError(
            "what the function returns of the input itself is not a finite number; mend "
            "the function, or leave out entries that are infinite"
        )
    if model.check:
        _compare(model, inputs, rows, raw)
    same = True
    # Moves of parameters are read as rounding, so that a function which draws at random would
    # show its draws. A compiled one repeats its results.
    if model.params_move and model.host:
        same = np.array_equal(model.batch(inputs, rows), raw, equal_nan=True)
    return FunctionBase(raw[0], found[0], raw.ndim == 3, same)


def _compare(
    model: Callable,
    inputs: Int[np.ndarray, "inputs tokens"],
    rows: Int[np.ndarray, "rows"],
    raw: Shaped[np.ndarray, "inputs *watched_classes"],
) -> None:
    """Raises if one of up to four inputs, called alone, has another result than in `raw`."""
    found = _by_row(raw)
    with np.errstate(invalid="ignore", over="ignore"):
        moved = np.nan_to_num(np.abs(found - found[0]).max(axis=(1, 2)), posinf=0)
    # Results that differ most from the first show best whether inputs of a batch mix.
    order = np.argsort(moved, kind="stable")
    at = np.unique([0, order[0], *order[-2:]])
    single = [model.evaluate(inputs[k : k + 1], rows) for k in at]
    if any(x.shape[1:] != raw.shape[1:] for x in single):
        raise InputError(
            f"the function returned an array of shape {single[0].shape[1:]} for an input "
            f"alone and {raw.shape[1:]} for one in a batch; expected one shape"
        )
    floating = jnp.issubdtype(raw.dtype, jnp.floating)
    allowed = float(jnp.finfo(raw.dtype).eps) ** 0.5 if floating else 0.0
    together, alone = found[at], _by_row(np.concatenate(single))
    # What is not finite is refused where it is met, by its name.
    finite = np.isfinite(together) & np.isfinite(alone)
    alike = (together == alone) | (np.isnan(together) & np.isnan(alone))
    largest = np.abs(np.where(finite, alone, 0)).max()
    differs = np.abs(np.where(finite, together, 0) - np.where(finite, alone, 0))
    differs = np.where(finite | alike, differs, np.inf)
    if differs.max() > allowed * largest:
        k = int(np.argmax(differs.max(axis=(1, 2))))
        raise InputError(
            f"input {at[k]} of a batch of {len(inputs)} differs by {differs[k].max():.3g} "
            f"from its single pass, where {raw.dtype.name} allows "
            f"{allowed * largest:.3g}: inputs of a batch influence each other, dropout is "
            "left on, or outputs are out of order; mend the function, return the float "
            "type it computes in, or give check=False"
        )


def function_blocks(request: InfluenceRequest) -> Iterator[Block]:
    """Yields the changes of a `Callable`'s results under all substitutions."""
    model, base = request.model, function_base(request).outputs
    for start in range(0, request.position.size, INPUTS_AT_ONCE):
        stop = min(start + INPUTS_AT_ONCE, request.position.size)
        changed = changed_inputs(request, slice(start, stop))
        found = _by_row(model.batch(changed, request.rows))
        if found.shape[1:] != base.shape:
            raise InputError(
                f"the function returned an array of shape {found.shape[1:]}, and one of "
                f"{base.shape} for the input itself; expected vectors [m], of one length "
                "for all inputs"
            )
        # What is not finite is refused by its name, without a warning.
        with np.errstate(invalid="ignore", over="ignore"):
            change = found - base
        if request.own:
            change = change[np.arange(stop - start), request.position[start:stop], None]
        yield Block(choose(change, request.chosen), None)


def evaluation_radii(request: InfluenceRequest) -> Float[np.ndarray, "substitutions"]:
    """Upper bounds on r(x') + r(x) for every substitution, x' its changed input."""
    assert request.radius is not None
    # Triangle inequality: | |f(x') - f(x)| - influence | <= r(x') + r(x).
    own = _radii(request.radius, request.tokens[None])[0]
    others = [
        _radii(request.radius, changed_inputs(request, slice(at, at + INPUTS_AT_ONCE)))
        for at in range(0, request.position.size, INPUTS_AT_ONCE)
    ]
    evaluations = np.concatenate([*others, np.empty(0)]) + own
    # The sum of radii is rounded too.
    return evaluations * (1 + gamma_upper(SCALAR_STEPS))


def changed_inputs(
    request: InfluenceRequest, chosen: Int[np.ndarray, "substitutions"] | slice
) -> Int[np.ndarray, "substitutions tokens"]:
    """Changed inputs, one for each chosen substitution."""
    at, symbols = request.position[chosen], request.symbol[chosen]
    changed = np.repeat(request.tokens[None], at.size, axis=0)
    changed[np.arange(at.size), at] = symbols
    return changed


def _by_row(
    found: Shaped[np.ndarray, "inputs *watched_classes"],
) -> Float[np.ndarray, "inputs watched classes"]:
    """Function results in float64; row or class axes that they lack have length 1."""
    missing = {1: (1, 2), 2: (1,), 3: ()}[found.ndim]
    return np.expand_dims(found.astype(np.float64), missing)


def norm_rounding(
    norm: Float[np.ndarray, "*norms"],  # of differences, or of entries of them
    size: int,  # entries of a difference
) -> Float[np.ndarray, "*norms"]:
    """Upper bound on the rounding of a computed norm of f(x') - f(x); 0 for a norm of 0."""
    rounding = gamma_upper(size + SCALAR_STEPS) * norm + SMALLEST
    return np.where(norm > 0, rounding, 0.0)


def _radii(
    stated: Radius, inputs: Int[np.ndarray, "inputs tokens"]
) -> Float[np.ndarray, "inputs"]:
    """Stated radius r(x) of each input x."""
    if callable(stated):
        return np.asarray([check_radius(stated(x), f" of {x}") for x in inputs])
    return np.full(len(inputs), stated)

"""Rows of a layer as forms of others, and the norms and changes that follow.

A row is a vector at one position, a program the steps that make rows of others. Its rows
are followed as *forms*, sums r = Σ A_k z_k + Σ B act(Σ C_k z_k + c) + r_0, over
*corners* z_k: the rows it starts from, outputs of norms, and sums that are read more than
once. Every corner has a bound on its norm, one on the distance of two of its values, and
a Lipschitz constant in each of the rows at the start.
"""

import dataclasses
import functools
import math
from collections import Counter
from typing import Any

import numpy as np
from mpmath import MPContext

from bounds.lemma5.closed_form import (
    feed_forward_lipschitz,
    layer_norm_change_cap,
    layer_norm_lipschitz,
    layer_norm_output_norm,
)
from bounds.numbers.interval import interval, upper
from bounds.numbers.norms import euclidean_norms
from bounds.numbers.rounding import gamma
from bounds.numbers.spectral import Enclosure, frobenius_upper
from bounds.readings import no_rule
from jax_models import InputError
from jax_models.model.rows import (
    Affine,
    Join,
    Norm,
    Operation,
    Program,
    Relu,
    Steady,
    Sum,
)


def path_gain(steepest: float, w2: Any, into: Enclosure) -> float:
    """Upper bound on the Lipschitz constant of z -> W2 act(M z + b), M = `into`."""
    # λ π with λ the largest slope of the activation and π = min_T |W2 T^{-1}| |T M|
    # over T = I and the T that balances the columns of W2 with the rows of M,
    # T_u = √(|W2[:,u]|/|M[u,:]|).
    return upper(interval(steepest) * interval(_product(w2, into)))


def residual_lipschitz(steepest: float, w2: Any, into: Enclosure) -> float:
    """Upper bound on the Lipschitz constant of z -> z + W2 act(M z + b)."""
    # min(1 + λ π, |I + W2 M/2| + (λ - 1/2) π), λ and π as in `path_gain`.
    product = Enclosure(np.asarray(w2, np.float64)) @ into
    width = len(product.middle)
    half = product.scaled(np.full(width, 0.5)) + Enclosure(np.eye(width))
    numbers = _product(w2, into), half.norm_upper()
    return feed_forward_lipschitz(*numbers, slope=steepest).value


def _product(w2: Any, into: Enclosure) -> float:
    w2 = Enclosure(np.asarray(w2, np.float64)).transposed
    used = np.any(w2.middle != 0, axis=1)  # a neuron that nothing leaves does nothing
    if not np.any(used):
        return 0.0
    w2, into = Enclosure(w2.middle[used]), Enclosure(into.middle[used], into.radius)
    plain = upper(interval(w2.norm_upper()) * interval(into.norm_upper()))
    # T need not be the best one exactly: every positive T gives a bound.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        # Norms of rows, roughly.
        columns, rows = euclidean_norms(w2.middle), euclidean_norms(into.middle)
        rows = np.maximum(rows, np.min(rows[rows > 0], initial=1.0))
        balance = np.sqrt(columns) / np.sqrt(rows)
        inverse = 1 / balance
    if not np.all(np.isfinite(balance) & np.isfinite(inverse)):
        return plain
    scaled = interval(w2.scaled(inverse).norm_upper())
    scaled *= interval(into.scaled(balance).norm_upper())
    # T^{-1} is the computed inverse exactly; then T is the balance but for a rounding.
    return min(plain, upper(scaled * (1 + gamma(1))))


@functools.singledispatch
def activated(operation: Operation, z: Enclosure) -> Enclosure:
    """Enclosure of an activation's values on the enclosure `z`."""
    raise no_rule("activated", operation)


@activated.register
def _(operation: Relu, z: Enclosure) -> Enclosure:
    return Enclosure(np.maximum(z.middle, 0.0), z.radius)


@activated.register
def _(operation: Steady, z: Enclosure) -> Enclosure:
    context: Any = MPContext()
    context.dps = 30
    flat = (context.mpf(float(x)) for x in z.middle.reshape(-1))
    exact = [float(operation.exact(x, context)) for x in flat]
    middle = np.reshape(exact, z.middle.shape)
    # 30 digits are far finer than the float they are rounded to.
    rounded = gamma(2) * interval(frobenius_upper(middle))
    moved = interval(operation.steepest) * interval(z.radius)
    return Enclosure(middle, upper(rounded + moved))


@dataclasses.dataclass(frozen=True)
class NormConstants:
    """Lipschitz constant of one layer norm, and upper bounds on its outputs, for all inputs.

    Attributes:
        lipschitz: max|γ|/√ε.
        change_cap: 2 max|γ| √d, on the distance of any two outputs.
        output_norm: max|γ| √d + |β|.
    """

    lipschitz: float
    change_cap: float
    output_norm: float


def read_norm(norm: Norm, name: str) -> NormConstants:
    """Constants of a layer norm, rounded up; an InputError where its ε is zero."""
    scale = float(np.max(np.abs(np.asarray(norm.scale, np.float64))))
    width = norm.scale.shape[0]
    bias = frobenius_upper(np.asarray(norm.bias, np.float64))
    try:
        lipschitz = layer_norm_lipschitz(scale, norm.epsilon).value
    except ValueError as error:
        raise InputError(f"{name}: {error}") from None
    return NormConstants(
        lipschitz,
        layer_norm_change_cap(scale, width).value,
        layer_norm_output_norm(scale, bias, width).value,
    )


@dataclasses.dataclass(frozen=True)
class Corner:
    """Bounds over all inputs on a corner, a row in which other rows are expressed."""

    size: float  # its norm is at most this
    cap: float  # two of its values differ by at most this; infinite where unknown
    # Its Lipschitz constants in the rows at the start; 0 in those left out.
    gains: dict[str, float]


@dataclasses.dataclass(frozen=True)
class Form:
    """A row Σ A_k z_k + Σ B act(…) + r_0 of corners z_k; several side by side in `parts`."""

    width: int
    # The matrices A_k by the corner; None is the identity.
    linear: dict[str, Enclosure | None] = dataclasses.field(default_factory=dict)
    bent: tuple["Bent", ...] = ()  # contributions of activations
    # Its value where all corners are zero (width, 1), None for nothing: one, or one for
    # each of the offsets that there may be.
    at_zero: tuple[Enclosure | None, ...] = (None,)
    parts: tuple["Form", ...] = ()  # forms side by side; then there is nothing else


@dataclasses.dataclass(frozen=True)
class Bent:
    """Term w2 act(form) of a row, an activation's contribution; w2 None is the identity."""

    bend: Steady
    w2: Any
    form: Form

    def reads(self, corner: str) -> Enclosure:
        """Matrix C_k of a corner z_k in the form that the activation reads."""
        matrix = self.form.linear[corner]
        return Enclosure(np.eye(self.form.width)) if matrix is None else matrix


class Reader:
    """Upper bounds on the corners of a program, added as its steps are read; rounded up."""

    def __init__(self, corners: dict[str, Corner], names: dict[int, str]) -> None:
        """Starts with the corners of the rows at the start, and names of norms by `id`."""
        self.corners, self.names = corners, names

    def corner(self, name: str, form: Form) -> Form:
        """Adds the row `form` as a corner unless it is one; returns the corner's form."""
        # A row that is one corner alone needs no other.
        plain = form == Form(form.width, dict.fromkeys(form.linear))
        if plain and len(form.linear) == 1:
            return form
        # The norm at zero, for the worst of the offsets, and what the corners add.
        size = interval(max(x.norm_upper() if x else 0.0 for x in form.at_zero))
        for k, gain in gains_of(form).items():
            size += interval(gain) * interval(self.corners[k].size)
        self._add(name, upper(size), form, 1.0, math.inf)
        return Form(form.width, {name: None})

    def behind(self, name: str, norm: Norm, form: Form) -> Form:
        """Adds the norm's output on the row `form` as the corner `name`; returns its form."""
        known = read_norm(norm, self.names[id(norm)])
        self._add(name, known.output_norm, form, known.lipschitz, known.change_cap)
        return Form(form.width, {name: None})

    def _add(
        self, name: str, size: float, form: Form, steep: float, cap: float
    ) -> None:
        gains, found = gains_of(form), {}
        for k, gain in gains.items():
            for source, further in self.corners[k].gains.items():
                term = interval(gain) * interval(further) * interval(steep)
                found[source] = found.get(source, interval(0)) + term
        caps = [(gain, self.corners[k].cap) for k, gain in gains.items()]
        if all(cap < math.inf for _, cap in caps):
            apart = (interval(gain) * interval(x) for gain, x in caps)
            cap = min(cap, upper(sum(apart, start=interval(0)) * interval(steep)))
        self.corners[name] = Corner(size, cap, {k: upper(x) for k, x in found.items()})


def gains_of(form: Form) -> dict[str, float]:
    """Lipschitz constants of a form in its corners, rounded up; an InputError if no rule."""
    if form.parts or any(bent.w2 is None for bent in form.bent):
        raise InputError(
            "it needs a rule for rows side by side, or right behind an activation, "
            "that no map reads, and has none; use a method that does without"
        )
    read, gains = [*form.linear, *(k for x in form.bent for k in x.form.linear)], {}
    for corner in dict.fromkeys(read):
        there = [part for part in form.bent if corner in part.form.linear]
        total, matrix = interval(0), form.linear.get(corner)
        if matrix is not None:
            total = interval(matrix.norm_upper())
        elif corner in form.linear and there:
            # A residual sum and its block together have less than the sum of their
            # constants.
            first, *there = there
            given = first.bend.steepest, first.w2, first.reads(corner)
            total = interval(residual_lipschitz(*given))
        elif corner in form.linear:
            total = interval(1.0)
        for part in there:
            given = part.bend.steepest, part.w2, part.reads(corner)
            total += interval(path_gain(*given))
        gains[corner] = upper(total)
    return gains


@functools.singledispatch
def form_of(operation: Operation, *forms: Form) -> Form:
    """Form of an operation's output row, from the forms of the rows that it reads."""
    raise no_rule("form_of", operation)


@form_of.register
def _(operation: Affine, *forms: Form) -> Form:
    (form,) = forms
    weight = np.asarray(operation.weight, np.float64)
    bias = operation.bias
    offset = None if bias is None else Enclosure(np.asarray(bias, np.float64)[:, None])
    linear, bent = {}, ()
    zeros = [offset] * max(len(part.at_zero) for part in form.parts or (form,))
    at = 0
    for part in form.parts or (form,):
        if any(bent.w2 is not None for bent in part.bent):
            raise no_rule("form_of", operation)  # a second map behind an activation
        piece = weight[:, at : at + part.width]
        at += part.width
        for corner, matrix in part.linear.items():
            term = Enclosure(piece) if matrix is None else Enclosure(piece) @ matrix
            linear[corner] = linear[corner] + term if corner in linear else term
        bent += tuple(dataclasses.replace(x, w2=piece) for x in part.bent)
        for k, old in enumerate(zeros):
            value = part.at_zero[k % len(part.at_zero)]
            if value is not None:
                value = Enclosure(piece) @ value
                zeros[k] = value if old is None else value + old
    return Form(len(weight), linear, bent, tuple(zeros))


@form_of.register
def _(operation: Sum, *forms: Form) -> Form:
    one, two = forms
    if one.parts or two.parts or one.linear.keys() & two.linear.keys():
        raise no_rule("sums of two forms of one row", operation)
    zeros = []
    for k in range(max(len(one.at_zero), len(two.at_zero))):
        a, b = (form.at_zero[k % len(form.at_zero)] for form in forms)
        zeros.append(a + b if a is not None and b is not None else a or b)
    bent = one.bent + two.bent
    return Form(one.width, one.linear | two.linear, bent, tuple(zeros))


@form_of.register
def _(operation: Join, *forms: Form) -> Form:
    parts = tuple(part for form in forms for part in form.parts or (form,))
    return Form(sum(part.width for part in parts), parts=parts)


@form_of.register
def _(operation: Steady, *forms: Form) -> Form:
    (form,) = forms
    if form.parts or form.bent:
        raise no_rule("form_of", operation)
    nothing = Enclosure(np.zeros((form.width, 1)))
    zeros = (activated(operation, nothing if x is None else x) for x in form.at_zero)
    return Form(form.width, {}, (Bent(operation, None, form),), tuple(zeros))


def read_rows(reader: Reader, program: Program, rows: dict[str, Form]) -> Corner:
    """Bounds on a program's output row; adds the program's corners to `reader`."""
    reads = Counter(name for step in program.steps for name in step.inputs)
    rows = dict(rows)
    for step in program.steps:
        read = [rows[name] for name in step.inputs]
        if isinstance(step.operation, Norm):
            form = reader.behind(step.name, step.operation, *read)
        else:
            form = form_of(step.operation, *read)
        if reads[step.name] > 1:
            form = reader.corner(step.name, form)
        rows[step.name] = form
    (name,) = reader.corner(program.output, rows[program.output]).linear
    return reader.corners[name]

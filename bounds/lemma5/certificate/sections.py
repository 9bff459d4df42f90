"""Constants of a layer's weights, and its row program in sections between known balls.

A certificate is a proved bound on the output's change when one token is replaced. The row
program is what a layer computes at each position by itself, after attention; its rows are
the vectors on the way. A ball is the centre of a row's change, a computed vector, with its
radius, an upper bound on the distance of the true change from the centre.

Value space: where head outputs are compared. It is the layer's own space (after the
output projection) for residual sums, and the head's space where heads are concatenated.

A ball is taken of every row that is read twice, that a norm reads or writes, and of the
output: these are corners. A section is the program between them: one norm, or affine
maps with activations in between, whose constants are read off its affine form.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from bounds.lemma5.certificate.norm_gain import vector_norms
from bounds.lemma5.certificate.order import bounded, times
from bounds.lemma5.certificate.scores import score_rule
from bounds.lemma5.constants.row_form import Form, form_of, gains_of
from bounds.numbers.norms import contract
from bounds.numbers.spectral import Enclosure, frobenius_upper, norm_upper
from jax_models.model.layer import Layer
from jax_models.model.pytree import pytree
from jax_models.model.rows import Activation, Affine, Norm, Program, Step, Sum

ByHead: TypeAlias = Float[Array, "heads"]
Numbers: TypeAlias = Float[Array, "..."]


@dataclasses.dataclass(frozen=True)
class Section:
    """Part of a layer's row program between corners (see the module); it writes a corner."""

    program: Program

    @property
    def name(self) -> str:
        """Name of the corner that the section writes."""
        return self.program.output

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the corners that the section reads."""
        written = {step.name for step in self.program.steps}
        read = (name for step in self.program.steps for name in step.inputs)
        return tuple(dict.fromkeys(name for name in read if name not in written))

    @property
    def norm(self) -> Norm | None:
        """The norm if the section is one, else None."""
        (operation, *_) = (step.operation for step in self.program.steps)
        return operation if isinstance(operation, Norm) else None

    @property
    def activation(self) -> Step | None:
        """The activation step, None if there is none."""
        steps = self.program.steps
        return next((x for x in steps if isinstance(x.operation, Activation)), None)

    @property
    def terms(self) -> tuple[int, int]:
        """Counts of roundings of an output entry: before the activation, and in all."""
        # Terms of inner products, and roundings of the activation.
        before, count = 0, 0
        for operation in (step.operation for step in self.program.steps):
            if isinstance(operation, Affine):
                count += operation.weight.shape[1]
            elif isinstance(operation, Activation):
                before, count = count, count + operation.roundings
        return before, count


def attended(layer: Layer) -> str:
    """Name of the program's row in value space: the heads, or their output projection."""
    if layer.attention.output is None:
        return "heads"
    (projection,) = (step for step in layer.writes.steps if "heads" in step.inputs)
    return projection.name


def sections(layer: Layer) -> tuple[Section, ...]:
    """Sections of a layer in order; the first read its input row y and `attended`."""
    program, given = layer.writes, {"y", attended(layer)}
    steps = [step for step in program.steps if step.name not in given]
    reads = [name for step in steps for name in step.inputs]
    corners = {*given, program.output, *(x for x in reads if reads.count(x) != 1)}
    for step in steps:
        if isinstance(step.operation, Norm):
            corners |= {step.name, *step.inputs}
    found, made = [], {}  # `made`: the steps behind each row that is no corner
    for step in steps:
        inside = [*(x for name in step.inputs for x in made.get(name, ())), step]
        made[step.name] = () if step.name in corners else inside
        if step.name in corners:
            ordered = tuple(x for x in steps if x in inside)
            found.append(Section(Program(ordered, step.name)))
    return tuple(found)


def without_sums(layer: Layer) -> tuple[Section, ...]:
    """Sections of a layer but for those at the start that consist of sums only."""
    operations = lambda section: (step.operation for step in section.program.steps)
    sums = lambda section: all(isinstance(x, Sum) for x in operations(section))
    return tuple(itertools.dropwhile(sums, sections(layer)))


@pytree
class SectionConstants:
    """Lipschitz constants and norms of a section without layer norm, by corners it reads."""

    # The corner "heads" has one number for each head, on the last axis. Without an
    # activation there are no neurons.
    gains: dict[str, Float[Array, "*heads"]]  # or [h], Lipschitz constants
    # Or [f, h], what its activation reads: norms of rows.
    reads: dict[str, Float[Array, "d_ff *heads"]]
    leaves: Float[Array, "d_ff"]  # of what it writes: norms of columns
    # What rounds: 1 for the identity, the Frobenius norm of another map, and the sum
    # over neurons of what they read times what they write.
    flow: dict[str, Float[Array, ""]]


def section_constants(layer: Layer) -> dict[str, SectionConstants]:
    """Constants of a layer's sections without norms, by the row that each writes."""
    attention = layer.attention
    h, v, width = attention.num_heads, attention.value_width, attention.query.shape[2]
    parts = [f"head {k}" for k in range(h)]
    # Without offsets: nothing here reads what an activation makes of them.
    bare = functools.partial(Form, at_zero=())
    side = Form(h * v, parts=tuple(bare(v, {name: None}) for name in parts))

    def gather(numbers: Mapping[str, Any]) -> dict[str, Numbers]:
        """`numbers` of corners as arrays; those of single heads are stacked as "heads"."""
        found = {k: jnp.asarray(x, jnp.float64) for k, x in numbers.items()}
        heads = [found.pop(part) for part in parts if part in found]
        return {**found, "heads": jnp.stack(heads, axis=-1)} if heads else found

    def of_section(section: Section) -> SectionConstants:
        sources = {
            name: side if name == "heads" else bare(width, {name: None})
            for name in section.sources
        }
        follow = lambda x, *read: form_of(x.operation, *read)
        rows = section.program.run(sources, follow)
        form, reads, leaves = rows[section.name], {}, jnp.zeros(0)
        gains = gains_of(form)  # refuses what it cannot follow
        if section.activation is not None:
            (bent,) = form.bent
            corners = {k: bent.reads(k) for k in bent.form.linear}
            norms = lambda matrix: vector_norms(jnp.asarray(matrix, jnp.float64))
            reads = {k: norms(x.middle) + x.radius for k, x in corners.items()}
            leaves = norms(bent.w2.T)
        around = {
            k: 1.0 if x is None else frobenius_upper(x.middle) + x.radius
            for k, x in form.linear.items()
        }
        flow, reads = gather(around), gather(reads)
        # Over all heads together the Frobenius norms of their blocks add in squares.
        flow = {k: vector_norms(x[None]) if x.ndim else x for k, x in flow.items()}
        for k, x in reads.items():
            whole = x if x.ndim == 1 else vector_norms(x)  # over all heads
            flow[k] = flow.get(k, 0.0) + bounded((leaves * whole).sum())
        return SectionConstants(gather(gains), reads, leaves, flow)

    return {x.name: of_section(x) for x in sections(layer) if x.norm is None}


def entering(
    layer: Layer, residual: Float[Array, "*rows"], heads: Float[Array, "heads *rows"]
) -> dict[str, Numbers]:
    """Radii of the sections' inputs: the layer's input, and the attended rows or heads."""
    name = attended(layer)
    return {"y": residual, name: heads if name == "heads" else heads.sum(axis=0)}


def carried_on(gains: dict[str, Numbers], balls: Mapping[str, Numbers]) -> Numbers:
    """Radius of the row that a section writes: sum over corners read of gain times radius."""

    def term(gain: Numbers, ball: Numbers, heads: bool) -> Numbers:
        # Gains of single entries, on a first axis, give an entry axis at the end.
        entries = gain.ndim == 1 + heads
        if heads:
            terms = "fh,h...->...f" if entries else "h,h...->..."
            return contract(terms, gain, ball)
        return gain * ball[..., None] if entries else times(gain, ball)

    terms = [term(gain, balls[name], name == "heads") for name, gain in gains.items()]
    return sum(terms[1:], terms[0])


@pytree
class CertificateConstants:
    """Lipschitz constants of a layer's maps, and Frobenius norms to bound their rounding."""

    query: ByHead  # |W_Q|, before the score scale
    key: ByHead  # |W_K|
    value: ByHead  # of the map from the attention's input to value space
    score: ByHead  # |w| of additive scores; 0 for dot products
    score_range: ByHead  # 2 |w|_1, no additive score row varies more; inf otherwise
    curvature: ByHead  # of additive scores in the argument of tanh; 0 otherwise
    sections: dict[str, SectionConstants]  # of what follows attention
    # For rounding, which sees the entries of a matrix and not what they cancel to.
    query_entries: ByHead  # Frobenius norms
    key_entries: ByHead
    value_entries: ByHead
    output_entries: ByHead  # of the output projection; 1 where there is none


def layer_constants(layer: Layer) -> CertificateConstants:
    """Constants of a layer that certificates need; its weights are float64."""
    attention = layer.attention
    # Maps from attention inputs to value space: O_h V_h, or V_h without O_h.
    values = [Enclosure(np.asarray(w, np.float64)) for w in attention.value_by_head]
    outputs = np.ones(attention.num_heads)
    if attention.output is not None:
        shape = -1, attention.num_heads, attention.value_width
        output = np.asarray(attention.output, np.float64).reshape(shape).swapaxes(0, 1)
        # A product of two weights is no float matrix, so its rounding is enclosed too.
        values = [Enclosure(o) @ v for o, v in zip(output, values, strict=True)]
        outputs = _each(frobenius_upper, output)
    numbers = {
        "query": _each(norm_upper, attention.query),
        "key": _each(norm_upper, attention.key_by_head),
        "value": np.asarray([x.norm_upper() for x in values]),
        **score_rule(attention.scoring).read_constants(attention.scoring, len(values)),
        "query_entries": _each(frobenius_upper, attention.query),
        "key_entries": _each(frobenius_upper, attention.key_by_head),
        "value_entries": _each(frobenius_upper, attention.value_by_head),
        "output_entries": outputs,
    }
    arrays = {k: jnp.asarray(x, jnp.float64) for k, x in numbers.items()}
    return CertificateConstants(**arrays, sections=section_constants(layer))


def _each(bound: Callable[[Any], float], matrices: Any) -> Float[np.ndarray, "heads"]:
    return np.asarray([bound(np.asarray(m, np.float64)) for m in matrices])

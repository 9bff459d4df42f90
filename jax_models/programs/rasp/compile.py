"""Compiled programs as models: average-hard attention, uniform or tieless in each head.

A tieless head has one best key, a uniform one weighs all keys alike. A plan is the list of
coordinates and layers of a compiled program; the gap is the least lead of a best score.
The weights depend on the program and its alphabet alone; the length enters by the position
encoding. In real arithmetic the best score is 1 or more above the next, at every length.
Floats compute a compiled program exactly up to `longest_exact_length`: integers are exact
below 2^p, p the bits of a float, and the means of Booleans enter one kind of score, which
floats miss by less than a quarter of its gap up to a certain length.

Source: docs/rasp.md, sections 6 and 7.
"""

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Shaped

from jax_models.arguments import expect_integer
from jax_models.errors import InputError
from jax_models.jax_arguments import check_float_type
from jax_models.model.transformer import Transformer
from jax_models.programs.assembly import Form
from jax_models.programs.circuit import build_circuit
from jax_models.programs.forms import CONSTANT
from jax_models.programs.rasp.lower import ProgramPlan, plan_program
from jax_models.programs.rasp.syntax import BooleanType, SymbolType, check_program
from jax_models.run.evaluate import apply_logits
from jax_models.weighting import AverageHardmax

# A power of two, so that the cell of an integer score is an integer: four cells apart.
TIE_RESOLUTION = 0.25

# Positions are 32-bit integers in the engine; the search for the longest ends there.
_LONGEST = 2**31 - 1


def longest_exact_length(plan: ProgramPlan, dtype: Any) -> int:
    """Returns the largest n up to which floats are proved to run a program exactly.

    For every n up to it and every input, hard attention in `dtype` attends to the keys
    of real arithmetic, no row is reported as ambiguous, and the result is exact.

    Args:
        plan: the compiled program.
        dtype: float32 or float64.

    Returns:
        n; 0 if not even one symbol is sure.

    Source:
        docs/rasp.md, section 7.
    """
    bits = jnp.finfo(dtype).nmant + 1
    fails = lambda n: not _is_exact(plan, bits, n)
    # All bounds grow with n: the lengths in question are an initial segment.
    return bisect.bisect_left(range(1, _LONGEST + 1), True, key=fails)


def check_length(plan: ProgramPlan, length: int, dtype: Any) -> None:
    """Raises `InputError` unless floats are proved to run a plan exactly at `length`."""
    check_float_type(dtype, "the model asked for")
    longest = longest_exact_length(plan, dtype)
    if length > longest:
        name = jnp.dtype(dtype).name
        remedy = f"use {'float64 or ' * (jnp.finfo(dtype).bits < 64)}a shorter input"
        raise InputError(
            f"this program is proved exact in {name} up to n = {longest}, asked for is "
            f"n = {length}; {remedy}"
        )


def _is_exact(plan: ProgramPlan, bits: int, length: int) -> bool:
    sizes = {CONSTANT: 1}
    for at, one in enumerate(plan.coordinates):
        assert one.bound is not None
        sizes[at] = one.bound(length)

    def size(form: Form) -> int:
        return sum(int(abs(factor)) * sizes[key] for key, factor in form.items())

    most = 2**bits
    heads = plan.heads
    # A score from a mean errs by less than 1/4 while 40 u n^2 < 1/4: docs/rasp.md, section 7.
    if any(not head.query for head in heads) and length**2 > most / (4 * 40):
        return False
    key_width = max((len(head.key) for head in heads), default=1)
    # The roundings that the engine counts in a score: `Attention.__post_init__`.
    steps = 2 * (plan.width + 1) + key_width + 2
    for head in heads:
        pairs = zip(head.query, head.key, strict=True)
        score = sum(size(query) * size(key) for query, key in pairs)
        # All roundings stay below the width of a cell of ties. With 4 steps or more the
        # score is then below 2^bits too: an integer score is exact.
        if steps * score >= TIE_RESOLUTION * most:
            return False
        if any(size(form) > most for form in (*head.query, *head.key)):
            return False
        # A uniform head adds up to n values before it divides.
        keys = 1 if head.query else length
        if any(keys * size(form) > most for form in head.value):
            return False
    written = dict.fromkeys(sizes, 0)
    for neuron in plan.neurons:
        for coordinate, factor in neuron.write.items():
            written[coordinate] += int(abs(factor)) * size(neuron.read)
        if size(neuron.read) > most:
            return False
    last = (*sizes.values(), *written.values(), *map(size, plan.result.forms))
    return max(last) <= most


def compile_program(
    text: str,
    alphabet: str | Sequence[str],
    *,
    max_length: int = 1,
    dtype: Any = jnp.float32,
) -> Transformer:
    """Returns an average-hard transformer that computes a program at every position.

    The read-out gives what the program returns: one logit that is 1 or 0 for a Boolean,
    with an accept rule; one that is the integer; one logit for each symbol that the
    result can be, 1 for the one it is, in the order of its type's `symbols`.

    Args:
        text: the program, in the grammar of docs/rasp.md, section 1.
        alphabet: the input symbols in the order of their ids.
        max_length: a length for which the model is wanted. It changes no weight: it is
            an error if floats are not proved exact up to there.
        dtype: float32 or float64.

    Returns:
        The model, whose vocabulary is the alphabet.

    Raises:
        InputError: for a program that is not in order, with line and column; for a
            `max_length` below 1 or beyond the proved length; for float64 without x64.

    Source:
        docs/rasp.md, Theorem.
    """
    expect_integer("max_length", max_length, 1)
    plan = plan_program(check_program(text, alphabet))
    check_length(plan, max_length, dtype)
    return build_model(plan, dtype)


def build_model(plan: ProgramPlan, dtype: Any = jnp.float32) -> Transformer:
    """Returns the transformer of a plan.

    Args:
        plan: from `plan_program`.
        dtype: float32 or float64.

    Raises:
        InputError: for float64 without x64, and for integers that the float type does
            not hold even at n = 1.
    """
    check_length(plan, 1, dtype)
    least = 0.5 if plan.result.type == BooleanType() else None
    weighting = AverageHardmax(TIE_RESOLUTION)
    return build_circuit(plan, plan.result.forms, least, weighting, dtype)


@dataclasses.dataclass(frozen=True)
class CompiledProgram:
    """A compiled program as a model with its plan, by which results are read.

    Args:
        plan: from `plan_program`.
        model: from `build_model`, or one with the same layout of coordinates, such as
            its twin with softmax and a temperature.
    """

    plan: ProgramPlan
    model: Transformer

    def run(self, tokens: Any) -> Shaped[np.ndarray, "tokens"]:
        """Results of the program at every position, read off the model.

        Args:
            tokens: ids of symbols of the alphabet [n].

        Returns:
            Booleans, integers or symbols [n].

        Raises:
            InputError: beyond the length up to which floats are proved exact, and as in
                `apply`.
        """
        check_length(self.plan, np.size(tokens), self.model.dtype)
        return read_result(self.plan, np.asarray(apply_logits(self.model, tokens)))


def read_result(
    plan: ProgramPlan, logits: Float[np.ndarray, "... classes"]
) -> Shaped[np.ndarray, "..."]:
    """Result of a program, from the logits of its model.

    Args:
        plan: of the model.
        logits: of its read-out [..., classes]; approximate ones are rounded.

    Returns:
        Booleans (a logit of at least 1/2), integers (the nearest) or symbols (of the
        largest logit), of the shape of the logits without the last axis.

    Raises:
        InputError: for logits of another number of classes.
    """
    result = plan.result
    classes = len(result.forms)
    if logits.shape[-1] != classes:
        raise InputError(
            f"logits of {logits.shape[-1]} classes; the program's result has {classes}"
        )
    if isinstance(result.type, SymbolType):
        return np.array(result.type.symbols)[logits.argmax(axis=-1)]
    if result.type == BooleanType():
        return logits[..., 0] >= 0.5
    return np.round(logits[..., 0]).astype(np.int64)

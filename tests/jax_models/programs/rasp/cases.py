"""Programs in all their forms, and strings to try them on."""

import itertools

import jax.numpy as jnp
import numpy as np

from jax_models.programs.rasp import (
    PROGRAMS,
    build_model,
    check_program,
    evaluate_program,
    plan_program,
    read_result,
)
from tests.jax_models.programs.rasp import hard_attention


def all_strings(alphabet, length):
    ids = range(len(alphabet))
    return np.array(list(itertools.product(ids, repeat=length)))


def some_strings(alphabet, length, most):
    """All strings of a length, or `most` random ones."""
    if len(alphabet) ** length <= most:
        return all_strings(alphabet, length)
    return np.random.default_rng(length).integers(0, len(alphabet), (most, length))


class Case:
    """A program in all its forms."""

    def __init__(self, text, alphabet):
        self.alphabet = alphabet
        self.program = check_program(text, alphabet)
        self.plan = plan_program(self.program)
        self.model = build_model(self.plan, jnp.float64)

    def flaws(self, strings, exact, plan=None):
        """What is wrong with the model on strings of one length; nothing at best."""
        model = self.model if plan is None else build_model(plan, jnp.float64)
        found = hard_attention.run(model, strings, exact=exact)
        said = read_result(self.plan, found.logits.astype(np.float64))
        # Floats may miss a gap of 1, far less than they may at the longest length.
        needed = self.plan.gap - (0 if exact else 2**-20)
        flaws = []
        if not np.array_equal(said, evaluate_program(self.program, strings)):
            flaws.append("answers")
        if found.most_tied > 1:
            flaws.append("ties")
        if found.least_gap < needed:
            flaws.append("gap")
        return flaws


def library(name):
    return Case(*PROGRAMS[name])

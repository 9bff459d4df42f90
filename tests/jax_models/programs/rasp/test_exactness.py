"""Lengths up to which floats are proved to decide as real numbers do."""

import jax.numpy as jnp
import numpy as np
import pytest

from jax_models.errors import InputError
from jax_models.programs.rasp import (
    PROGRAMS,
    CompiledProgram,
    build_model,
    compile_program,
    evaluate_program,
    longest_exact_length,
    read_result,
)
from tests.jax_models.programs.rasp import hard_attention
from tests.jax_models.programs.rasp.cases import Case, library, some_strings
from tests.jax_models.programs.rasp.random_programs import ALPHABET

pytestmark = pytest.mark.usefixtures("quick_compilation")


def test_beyond_what_is_proved_the_length_is_refused():
    text, alphabet = PROGRAMS["dyck2"]
    case = library("dyck2")
    longest = longest_exact_length(case.plan, jnp.float32)
    compile_program(text, alphabet, max_length=longest)
    with pytest.raises(InputError, match=f"exact in float32 up to n = {longest}"):
        compile_program(text, alphabet, max_length=longest + 1)
    with pytest.raises(InputError, match="max_length = 0; expected an integer"):
        compile_program(text, alphabet, max_length=0)
    with pytest.raises(InputError, match="up to n = 0"):
        compile_program("x = 123456789 + pos\nreturn x", "ab")
    compiled = CompiledProgram(case.plan, build_model(case.plan, jnp.float32))
    with pytest.raises(InputError, match="use float64"):
        compiled.run(np.zeros(longest + 1, int))


@pytest.mark.parametrize("name", PROGRAMS)
def test_float64_is_proved_exact_to_ten_thousand_symbols(name):
    assert longest_exact_length(library(name).plan, jnp.float64) >= 10_000


@pytest.mark.parametrize("name", ["majority", "dyck2", "induction_head"])
def test_float32_is_exact_up_to_the_length_that_is_proved(name):
    case = library(name)
    longest = min(longest_exact_length(case.plan, jnp.float32), 64)
    strings = some_strings(case.alphabet, longest, 3)
    single = hard_attention.run(case.model, strings, dtype=np.float32)
    said = read_result(case.plan, single.logits)
    assert np.array_equal(said, evaluate_program(case.program, strings))
    assert single.logits.dtype == np.float32
    assert single.least_gap > 1 / 2


def test_the_engine_reports_no_row_up_to_the_length_that_is_proved():
    """In float32, where all keys are n: the largest scores, and a gap of 1."""
    text = (
        "last = right_j[true, true] pos(j) : 0\n"
        "x = right_j[true, last(j) = last(i)] pos(j) : 0\nreturn x"
    )
    case = Case(text, ALPHABET)
    model = build_model(case.plan, jnp.float32)
    longest = longest_exact_length(case.plan, jnp.float32)
    said = CompiledProgram(case.plan, model).run(np.zeros(longest, int))
    assert said.tolist() == [longest] * longest

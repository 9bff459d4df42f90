"""Positions in closed form bound every position, closely, in memory that does not grow."""

import dataclasses
import time
import tracemalloc

import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds import closed_form_bounds
from bounds.lemma5.constants import model_constants
from bounds.lemma5.constants.model_constants import (
    largest_sum_in_closed_form,
    read_embeddings,
)
from jax_models.model.position import Coordinates, PowerTerm, ResidueTerm, Sinusoidal
from tests.bounds.lemma5.constants.drawn import WIDTH, draw

LENGTHS = (1, 2, 3, 7, 64, 1000)
SYMBOLS = np.random.default_rng(0).normal(size=(3, WIDTH))
SINUSOIDS = {
    "sinusoidal": Sinusoidal(),
    "of few periods": Sinusoidal(base=3, scale=-2),
    "small": Sinusoidal(scale=1e-30),
}
TERMS = {
    "nothing": Coordinates(()),
    "p / n": Coordinates((PowerTerm(0, 1.5, 1, -1),)),
    "alternating": Coordinates((PowerTerm(0, 0.3, alternating=True),)),
    "p / n and its sign": Coordinates(
        (PowerTerm(0, 1, 1, -1, offset=0), PowerTerm(1, 2, 0.5, -0.5, True))
    ),
    "residues": Coordinates(
        (ResidueTerm(0, 3, (1, 2)), ResidueTerm(1, 4, (0,), 0), PowerTerm(2, -1, 1, -1))
    ),
    "one of three": Coordinates(tuple(ResidueTerm(r, 3, (r,)) for r in range(3))),
    "across zero": Coordinates((PowerTerm(0, 1, 3, -3, offset=-20),)),
    "next to a pole": Coordinates((PowerTerm(0, 1, -2, 0, offset=-2.5),)),
    "even power": Coordinates((PowerTerm(0, -1, 2, -2, True, offset=-20),)),
    "two on a coordinate": Coordinates(
        (PowerTerm(0, 1, -0.5), ResidueTerm(0, 2, (1,)), PowerTerm(0, -3, 0, -1))
    ),
}
DTYPES = [np.dtype("float64"), np.dtype("float32")]


def largest(symbols, position, length, dtype):
    """The maximum over all positions, one by one, in higher precision."""
    rows = position.encode(length, WIDTH).astype(dtype).astype(np.longdouble)
    sums = symbols.astype(np.longdouble)[:, None] + rows[None]
    return np.sqrt((sums**2).sum(axis=-1)).max()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SINUSOIDS | TERMS)
def test_the_closed_form_bounds_every_position(name, dtype):
    position = (SINUSOIDS | TERMS)[name]
    for length in LENGTHS:
        for symbols in (SYMBOLS, 0 * SYMBOLS, -1e-3 * SYMBOLS, 1e6 * SYMBOLS):
            bound = largest_sum_in_closed_form(symbols, position, length, dtype)
            assert bound >= largest(symbols, position, length, dtype)


def test_a_long_sinusoid_comes_close_to_its_bound():
    position = Sinusoidal(base=3)
    bound = largest_sum_in_closed_form(SYMBOLS, position, 2, DTYPES[0])
    found = largest(SYMBOLS, position, 20000, DTYPES[0])
    assert found <= bound < 1.01 * found


def test_more_classes_than_are_told_apart_are_bounded_together(monkeypatch):
    """A residue is 0 or 1, whatever it is."""
    position = TERMS["one of three"]
    apart = largest_sum_in_closed_form(SYMBOLS, position, 1000, DTYPES[0])
    monkeypatch.setattr(model_constants, "MOST_CLASSES", 5 * WIDTH)
    together = largest_sum_in_closed_form(SYMBOLS, position, 1000, DTYPES[0])
    assert together > apart
    monkeypatch.setattr(model_constants, "LARGEST_EXACT", 1000)
    beyond = largest_sum_in_closed_form(SYMBOLS, position, 1000, DTYPES[0])
    assert beyond == together


@pytest.mark.parametrize(
    "term", [PowerTerm(0, 1, 0.5, offset=-3), PowerTerm(0, 1, -1, offset=-3)]
)
def test_a_formula_without_a_value_is_refused(term):
    with pytest.raises(jm.InputError, match=r"negative p|pole"):
        largest_sum_in_closed_form(SYMBOLS, Coordinates((term,)), 10**15, DTYPES[0])


def test_a_length_beyond_the_floats_is_refused_where_terms_need_it():
    with pytest.raises(jm.InputError, match="beyond float64"):
        largest_sum_in_closed_form(SYMBOLS, TERMS["p / n"], 10**400, DTYPES[0])
    sinusoid = SINUSOIDS["sinusoidal"]
    assert largest_sum_in_closed_form(SYMBOLS, sinusoid, 10**400, DTYPES[0]) < 10


@pytest.mark.parametrize(
    "position", [Sinusoidal(scale=1e39), Coordinates((PowerTerm(0, 1, 4),))], ids=repr
)
def test_what_leaves_the_float_type_bounds_nothing(position):
    wide, narrow = (
        largest_sum_in_closed_form(SYMBOLS, position, 10**10, x) for x in DTYPES
    )
    assert wide < narrow == np.inf


def model_with(position, dtype="float64"):
    model = draw(0, num_layers=2, scale=0.1, position="none").model
    embedding = jnp.asarray(SYMBOLS, dtype)
    return dataclasses.replace(model, embedding=embedding, position=position)


POSITIONS = {"none": None, "sinusoidal": Sinusoidal(), **TERMS}
SHOWN = ("none", "sinusoidal", "p / n and its sign", "residues")


@pytest.mark.parametrize("name", POSITIONS)
def test_norms_are_those_of_all_positions(name, monkeypatch):
    """In blocks the same, in closed form no smaller and little larger."""
    model = model_with(POSITIONS[name])
    whole = read_embeddings(model, 1000)
    monkeypatch.setattr(model_constants, "_BLOCK", 7 * WIDTH)
    blocks = read_embeddings(model, 1000)
    monkeypatch.setattr(model_constants, "_MOST", 0)
    formula = read_embeddings(model, 1000)
    assert formula.distance == whole.distance
    for field in dataclasses.fields(whole):
        parts, form, exact = (getattr(x, field.name) for x in (blocks, formula, whole))
        assert parts == pytest.approx(exact, rel=1e-14)
        assert exact * (1 - 1e-14) <= form < 1.35 * exact


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("length", [10**7, 10**15])
def test_lengths_of_any_size_take_no_more_memory_or_time(name, length):
    model = model_with(POSITIONS[name])
    closed_form_bounds(model, 10)  # what is loaded once
    tracemalloc.start()
    began = time.process_time()
    forms = closed_form_bounds(model, length)
    seconds = time.process_time() - began
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < forms.corrected.others.value < np.inf
    assert peak < 2**26
    assert seconds < 1


def test_the_bound_falls_like_one_over_the_length():
    model = model_with(None)
    near, far = (
        closed_form_bounds(model, n).corrected.others.value for n in (10**7, 10**15)
    )
    assert near / far == pytest.approx(10**8, rel=1e-3)

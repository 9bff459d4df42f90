"""Layers whose rows have all moved, in a kernel interpreted on a CPU: `incremental` again."""

import dataclasses
import functools
import itertools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import Problem, fused_layer
from bounds.influence import deep as deep_module
from bounds.influence.choice import choose_method
from bounds.influence.deep import move_rows
from bounds.influence.first_layer import prepare_layer
from bounds.influence.row_targets import LogProbabilitySum
from jax_models.model.mask import MASKS
from tests.bounds.influence.fused_questions import (
    TYPES,
    disagreement,
    draw,
    noticed,
    plant_centre,
    plant_reference,
    plant_weights,
)
from tests.bounds.influence.models import TEMPERATURES, scaled_weights

pytestmark = pytest.mark.usefixtures("quick_compilation", "small_blocks")
N = 13
TINY = {"num_heads": 1, "d_model": 2, "d_ff": 16, "mask": "none"}


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of 8 substitutions, and keys in tiles of 5, so that there are several."""
    monkeypatch.setattr(fused_layer, "LANES", 8)
    monkeypatch.setattr(fused_layer, "key_tile", lambda length: 5)


def deep(seed=0, **options):
    return draw(seed, **{"num_layers": 3, **options})


SHAPES = {
    "usual": {},
    "four": {"num_layers": 4, "d_model": 4},
    "pre": {"layer_norm": "pre", "activation": "gelu"},
    "post": {"layer_norm": "post", "norm": "rms_norm", "gated": True},
    "odd": {"num_heads": 3, "d_model": 6, "d_ff": 5, "position": None},
    "concat": {"num_heads": 1, "d_model": 4, "d_ff": 24, "combine": "concat"},
    "window": {"window": 4, "score": "dot_product"},
    "turned": {"rotary": jm.Rotary(4), "position": None, "query_key_norm": "rms_norm"},
    "temperature": {"temperature": TEMPERATURES["power of the position"]},
}


def cases():
    """Both types of the usual shape under every mask, the others in turn."""
    for (k, mask), name in itertools.product(enumerate(MASKS), SHAPES):
        if name != "temperature" or "future" in mask:
            types = TYPES if name == "usual" else TYPES[k % 2 :][:1]
            yield from (pytest.param(name, mask, dtype) for dtype in types)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "mask", "dtype"), list(cases()))
def test_the_kernel_is_incremental_within_the_radius(shape, mask, dtype):
    """From flat attention to scores beside which all but one weight underflow."""
    query = 0 if "past" in mask else N - 1
    for seed, scale in enumerate((0.5, 1.0, 3.0, 10.0, 30.0, 100.0)):
        model = deep(seed, mask=mask, dtype=dtype, **SHAPES[shape])
        for value in (1.0, 20.0):
            scaled = scaled_weights(model, query=scale, key=scale, value=value)
            question = {"query": query, "include_query": True}
            assert disagreement(scaled, N, **question) < 1, (scale, value)


@pytest.mark.slow
@pytest.mark.parametrize("layers", [2, 3])
def test_many_rows_are_watched_alike(layers):
    target = LogProbabilitySum((0, 1, 2), at=(1, 4, 8))
    for mask in ("none", "future"):
        model = deep(1, num_layers=layers, mask=mask, num_classes=3)
        assert disagreement(model, N, target=target) < 1
        ask = functools.partial(bounds.scan, model, [0, 1, 2] * 3, rows=[1, 8])
        found, expected = (ask(method=x) for x in ("fused", "incremental"))
        radius = np.minimum(*((x.upper - x.lower) / 2 for x in (found, expected)))
        np.testing.assert_array_equal(*(np.isnan(x.values) for x in (found, expected)))
        assert not (np.abs(found.values - expected.values) > radius).any()


# ----------------------------------------------------------------- a layer by itself


def layer_of(mask, dtype="float64", **options):
    """A layer, its base pass, changes of its input rows from row 3 on, and those moved."""
    model = deep(mask=mask, dtype=dtype, **options)
    rows, changes = (
        jax.random.normal(jax.random.key(k), shape, dtype)
        for k, shape in enumerate([(N, 8), (3, N, 8)])
    )
    changes = jnp.where(jnp.arange(N)[:, None] < 3, 0, changes)
    layer = model.layers[1]
    base = jax.jit(prepare_layer)(layer, rows, jnp.arange(N, dtype=jnp.int32))
    return layer, base, changes, (jnp.int32(3), jnp.int32(N - 1))


@jax.jit
def both(layer, base, changes, moved):
    """The kernel's changes of rows and those of one substitution after the other."""
    found = fused_layer.move_rows_at_once(layer, base, changes, moved)
    return found, jax.lax.map(lambda one: move_rows(layer, base, one)[0], changes)


def test_rows_before_the_substitutions_are_exactly_zero():
    found, expected = both(*layer_of("future"))
    np.testing.assert_array_equal(found[:, :3], 0)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-14)


@pytest.mark.slow
def test_a_substitution_goes_both_ways_where_one_layer_lets_it():
    """Behind a layer without a mask a causal one's rows have all moved."""
    model, other = deep(mask="future"), deep(mask="none")
    for k in range(2):
        layers = [*model.layers]
        layers[k] = other.layers[k]
        mixed = dataclasses.replace(model, layers=tuple(layers))
        assert disagreement(mixed, N) < 1


# ------------------------------------------------------------ what would be noticed


class Nothing:
    """Zeros in the place of a reference."""

    def __init__(self, reference):
        self.reference = reference

    @property
    def shape(self):
        return self.reference.shape

    def __getitem__(self, at):
        return self.reference[at] * 0


def without(references, *names):
    """References, of which some read as zeros."""
    held = {x.name: getattr(references, x.name) for x in dataclasses.fields(references)}
    for name in names:
        held[name] = Nothing(held[name])
    return SimpleNamespace(**held)


def plant_query(monkeypatch):
    """Keys stand still for the moved query."""
    right = fused_layer._score

    def wrong(body, *at):
        _, change = right(body._replace(base=without(body.base, "keys")), *at)
        return right(body, *at)[0], change

    monkeypatch.setattr(fused_layer, "_score", wrong)


def plant_product(monkeypatch):
    """The product of both changes is left out."""
    right = fused_layer._score

    def wrong(body, *at):
        score, change = right(body, *at)
        still = body._replace(base=without(body.base, "keys", "queries"))
        return score, change - right(still, *at)[1]

    monkeypatch.setattr(fused_layer, "_score", wrong)


def plant_key(monkeypatch):
    """Every row overlooks the last key that it sees."""
    right = fused_layer._sum_head
    monkeypatch.setattr(
        fused_layer, "_sum_head", lambda *about: right(*about[:-1], about[-1] - 1)
    )


def plant_deviation(monkeypatch):
    """Old weights are not added up."""
    right = fused_layer.rescaled

    def wrong(*about):
        peak, weight, shrink = right(*about)
        return peak, weight * 0, shrink

    monkeypatch.setattr(fused_layer, "rescaled", wrong)


def plant_reach(monkeypatch):
    """The last row that a substitution moves is taken for one that it does not."""
    right = deep_module.spans

    def wrong(*about):
        return [(first, last - 1) for first, last in right(*about)]

    monkeypatch.setattr(deep_module, "spans", wrong)


PLANTED = {
    "query": plant_query,
    "product": plant_product,
    "key": plant_key,
    "deviation": plant_deviation,
    "reach": plant_reach,
    "weights": plant_weights,
    "centre": plant_centre,
    "reference": plant_reference,
}
# What has weights beside which the others underflow.
TELLING = {
    "centre": (1, {"query": 30.0, "key": 10.0}),
    "reference": (0, {"query": 30.0, "key": 30.0}),
}


@pytest.mark.slow
@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_is_noticed(error, monkeypatch):
    seed, factors = TELLING.get(error, (0, {}))
    model = scaled_weights(deep(seed, **TINY), **factors)
    assert noticed(model, 9, lambda: PLANTED[error](monkeypatch))


# --------------------------------------------------------------------- who asks for it


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"weighting": ["softmax", "average_hard", "softmax"]}, "softmax layers"),
        ({"score": "additive"}, "products of queries and keys"),
        ({"distance_bias": jm.Alibi(np.asarray([0.5, 0.1]))}, "no distance biases"),
    ],
    ids=["weighting", "score", "distances"],
)
def test_what_it_cannot_do_it_refuses(options, why):
    problem = Problem.ask(deep(**options), [0, 1, 2, 1])
    with pytest.raises(jm.InputError, match=f"'fused' cannot do this model: .*{why}"):
        choose_method("fused", problem)

"""What is attended to lies in the possible sets, in every completion, layer and head."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds.numbers.rounding import SCALAR_STEPS
from bounds.restriction.analysis import PartialInput, analyse, possible_edges
from bounds.restriction.scores import score_rows
from jax_models.model.attending import compute_scores, project, project_queries
from jax_models.model.mask import visible
from jax_models.model.transformer import apply_layer, attention_input, embed
from tests.bounds.restriction.drawn_models import completions, random_model

pytestmark = pytest.mark.usefixtures("quick_compilation")

LENGTH = 7
WEIGHTINGS = ("leftmost_hard", "rightmost_hard", "average_hard")


@functools.partial(jax.jit, static_argnames="depth")
def _weights(model, tokens, depth):
    rows = embed(model, tokens)
    for layer in model.layers[:depth]:
        rows, _ = apply_layer(layer, rows)
    layer, length = model.layers[depth], tokens.shape[0]
    attention, inputs = layer.attention, attention_input(layer, rows)
    at = jnp.arange(length, dtype=jnp.int32)
    queries = project_queries(attention, inputs, length, at)
    keys = project(attention.key, attention.key_bias, inputs)
    scores = compute_scores(attention, queries, keys, length, at)
    return attention.weighting.weights(scores, visible(attention.sight, at, at))


def escapes(model, rho, analysis):
    """Count attended positions outside the possible sets, and all that were looked at."""
    strings = completions(rho)
    # Of all restrictions as many, so that one program runs them.
    filled = jnp.asarray(np.resize(strings, (2**LENGTH, LENGTH)), jnp.int32)
    outside = looked = 0
    tables = [{i: (i,) if rho[i] == -1 else () for i in range(len(rho))}]
    tables += [{i: sets.bits for i, sets in one.items()} for one in analysis.layers]
    for depth, layer in enumerate(analysis.layers):
        weights = jax.vmap(lambda x, k=depth: _weights(model, x, k))(filled)
        attended = np.asarray(weights)[: len(strings)] > 0  # [strings, head, row, key]
        for i, sets in layer.items():
            own = tables[depth][i]
            case = sum(
                (strings[:, bit] << k for k, bit in enumerate(own)),
                start=np.zeros(len(strings), int),
            )
            for head, rows in enumerate(sets.heads):
                assert len(rows) == 2 ** len(own)
                allowed = np.zeros((len(rows), len(rho)), bool)
                for a, (possible, _) in enumerate(rows):
                    allowed[a, list(possible)] = True
                found = attended[:, head, i]
                outside += int((found & ~allowed[case]).sum())
                looked += int(found.sum())
    return outside, looked


def case(seed, **options):
    """Draw a model with ties and a restriction under which few bits matter."""
    model = random_model(seed, num_layers=2, num_heads=2, **options)
    rho = np.random.default_rng(seed).choice([-1, -1, -1, 0, 1], LENGTH)
    return model, rho, analyse(model, PartialInput(rho.astype(np.int32)), LENGTH - 1)


SLOW = ["future", "past", "strict_future", "strict_past"]


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize(
    "mask", ["none", *(pytest.param(mask, marks=pytest.mark.slow) for mask in SLOW)]
)
def test_whom_a_row_attends_to_is_possible(weighting, mask):
    looked = 0
    for seed in range(4):
        outside, count = escapes(*case(seed, weighting=weighting, mask=mask))
        assert outside == 0
        looked += count
    assert looked > 1000 or mask != "none"


def without_one(analysis, depth):
    """Remove the witness from every possible set of a layer."""
    layer = {
        i: dataclasses.replace(
            sets,
            heads=tuple(
                tuple((tuple(set(poss) - {w}), w) for poss, w in head)
                for head in sets.heads
            ),
        )
        for i, sets in analysis.layers[depth].items()
    }
    layers = list(analysis.layers)
    layers[depth] = layer
    return dataclasses.replace(analysis, layers=tuple(layers))


def test_a_position_that_is_missing_from_a_set_is_noticed():
    model, rho, analysis = case(0)
    for depth in range(2):
        assert escapes(model, rho, without_one(analysis, depth))[0] > 0


def test_edges_of_a_layer_are_the_sets_of_all_heads_and_rows():
    model, rho, analysis = case(1)
    partial = PartialInput(rho.astype(np.int32))
    for depth, layer in enumerate(analysis.layers):
        edges = dict(possible_edges(model, partial, LENGTH - 1, depth))
        for i, sets in layer.items():
            union = {j for head in sets.heads for poss, _ in head for j in poss}
            assert set(edges[i]) == union


def test_a_temperature_that_is_compiled_otherwise_is_within_the_radius():
    """A power of n, and of a position, may be rounded in several places."""
    schedule = jm.PowerTemperature(0.7, -0.5, "position")
    model = random_model(0, integer=False, temperature=schedule, mask="future")
    partial = PartialInput(np.full(LENGTH, -1, np.int32), (0, 1))
    tables = analyse(model, partial, LENGTH - 1, depth=0).final
    layer = model.layers[0]
    of = {}
    for name, temperature in (("power", schedule), ("none", None)):
        attention = dataclasses.replace(layer.attention, temperature=temperature)
        of[name] = score_rows(
            dataclasses.replace(layer, attention=attention),
            tables,
            LENGTH,
        ).query
    relative = {name: q.radius / np.abs(q.value) for name, q in of.items()}
    more = SCALAR_STEPS * np.finfo(np.float64).eps / 2
    assert (relative["power"] >= relative["none"] + more).all()

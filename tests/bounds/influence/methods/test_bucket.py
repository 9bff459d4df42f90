"""Inputs of similar lengths run one set of programs, and nothing sees the padding."""

import dataclasses
import functools
import itertools
from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence.build import TableOptions, build_request
from bounds.influence.methods import bucket
from bounds.influence.methods.bucket import LENGTHS, bucket_length
from jax_models.model.entry import TokenDropout
from jax_models.model.mask import Sight
from jax_models.run.mesh import device_mesh
from tests.bounds.influence.expect import meet, refused
from tests.bounds.influence.models import TOKENS, build
from tests.compiled import programs

# Keywords of a scan's question; the others are of its answer.
ASKED = {"target", "positions"}


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(bucket, "SHORTEST", 2)


@pytest.fixture
def unpadded(monkeypatch):
    """Function that asks a question without padding."""

    def ask(function, *given, **options):
        with monkeypatch.context() as patch:
            patch.setattr(bucket, "bucket_length", lambda _: None)
            return function(*given, **options)

    return ask


def test_lengths_grow_by_less_than_a_seventh():
    assert set(2 ** np.arange(4, 10)) <= set(LENGTHS)
    for one, after in itertools.pairwise(LENGTHS):
        assert one < after < 1.15 * (one + 1)
    between = [n for n in LENGTHS if 40 <= n < 80] + [84]
    assert between == [42, 48, 55, 64, 73, 84]


RNG = np.random.default_rng(0)
MEAN = {"pooling": jm.Pooling("mean", True)}
NOWHERE = {"position": None}
SLOPES = jm.Alibi(jnp.asarray([0.5, 0.1]))
BUCKETS = jm.DistanceBuckets(jnp.asarray(RNG.normal(size=(2, 8))), max_distance=9)
TABLE = jm.PositionTable(jnp.asarray(RNG.normal(size=(13, 8))))
HARD = {"weighting": "leftmost_hard", "num_layers": 3, "tie_resolution": 1e-6}
# Parts of models, their pooling and head row among them, and keywords of scans.
SCANS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rotary, all rows": (
        {"rotary": jm.Rotary(4), **NOWHERE, "num_layers": 3},
        {"rows": "all", "method": "incremental"},
    ),
    "slopes, most rows": (
        {"distance_bias": SLOPES, **NOWHERE},
        {"rows": list(range(1, 11)), "method": "partial"},
    ),
    "buckets of distances, two rows": (
        {"distance_bias": BUCKETS, **NOWHERE},
        {"rows": [7, 2], "method": "incremental", "target": "log_probabilities"},
    ),
    "window and a map": (
        {"window": 4},
        {"rows": "all", "target": "logits", "reduce": bounds.Frobenius()},
    ),
    "table that ends": (
        {"position": TABLE},
        {"rows": "all", "target": bounds.influence.LogProbability(1)},
    ),
    "mean of rows": (MEAN, {"target": "pooled", "method": "incremental"}),
    "distance of means": (MEAN, {"target": "cosine_distance", "method": "partial"}),
    "last row": ({"pooling": jm.Pooling("last")}, {"target": "pooled"}),
    "sum over some rows": (
        {},
        {"target": bounds.influence.LogProbabilitySum((0, 2), (3, 8))},
    ),
    "head of the first row": ({"head_row": "first"}, {"target": "logits"}),
    "few positions": (
        MEAN,
        {"positions": [3], "method": "exhaustive", "target": "pooled"},
    ),
    "hard layers": (HARD, {"method": "incremental", "ties": "ignore"}),
    "own rows": (
        {"mask": "past"},
        {"rows": "own", "target": "logits", "method": "partial"},
    ),
    "meshes": (
        {"mask": "past"},
        {"rows": "all", "run": bounds.Run(mesh=device_mesh(2))},
    ),
}
OF_MODELS = ("pooling", "head_row")


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("case", SCANS)
def test_scans_of_padded_inputs_are_those_without(case, unpadded):
    parts, question = SCANS[case]
    more = {name: parts[name] for name in OF_MODELS if name in parts}
    drawn = build({k: x for k, x in parts.items() if k not in more})
    model = dataclasses.replace(drawn, **more)
    of_table = {f.name for f in dataclasses.fields(TableOptions)}
    table = TableOptions(**{k: v for k, v in question.items() if k in of_table})
    others = {k: v for k, v in question.items() if k in ASKED}
    request = build_request(model, TOKENS, table=table, **others)
    assert bucket_length(request) == 16
    found = bounds.scan(model, TOKENS, **question)
    alone = unpadded(bounds.scan, model, TOKENS, **question)
    assert found.values.shape == alone.values.shape
    assert meet(found, alone)
    assert np.nanmax(np.abs(found.values)) > 0
    width = np.nanmax(found.upper - found.lower)
    assert width <= 4 * np.nanmax(alone.upper - alone.lower)


@pytest.mark.usefixtures("short")
def test_the_largest_influences_of_a_padded_input_have_radii(unpadded):
    asked: dict[str, Any] = {"rounding": "top", "method": "incremental"}
    model = build({"mask": "future"})
    ask = functools.partial(bounds.compute_influence, model, TOKENS, **asked)
    found, alone = ask(), unpadded(ask)
    assert found.exact
    assert found.enclosed is not None
    assert 0 < found.enclosed.sum() <= found.substitutions
    assert (found.position, found.symbol) == (alone.position, alone.symbol)
    assert found.max_lower <= alone.max_upper
    assert alone.max_lower <= found.max_upper


@pytest.mark.usefixtures("short")
def test_a_padded_key_that_is_seen_is_noticed(plant, unpadded):
    model = build({})
    alone = unpadded(bounds.scan, model, TOKENS, rows="all")
    right = Sight.visible

    def wrong(sight, rows, keys):
        return right(dataclasses.replace(sight, end=None), rows, keys)

    plant(Sight, "visible", wrong)
    assert not meet(bounds.scan(model, TOKENS, rows="all"), alone)


@pytest.mark.usefixtures("short")
def test_what_depends_on_the_length_keeps_its_own():
    model, power = build({}), jm.model.position.PowerTerm
    dropout = dataclasses.replace(model, token_dropout=TokenDropout(2, 0.12))
    some = np.where(TOKENS == 2, 0, TOKENS)
    every = bounds.influence.LogProbabilitySum((0,) * 12)
    sums = lambda _, x: jnp.ones(2) * x.sum()

    def at(**term):
        return build({"position": jm.Coordinates((power(0, **term),))})

    for padded in (
        build_request(model, TOKENS),
        build_request(at(position_power=-1), TOKENS),
        build_request(dropout, some, symbols=[0, 1]),
    ):
        assert bucket_length(padded) == 16
    for kept in (
        build_request(at(length_power=-1.0), TOKENS),
        build_request(at(position_power=-1, offset=-14), TOKENS),
        build_request(build({"layer_norm": "post", "layer_norm_epsilon": 0.0}), TOKENS),
        build_request(dropout, TOKENS),
        build_request(model, TOKENS, precision="bfloat16"),
        build_request(model, TOKENS, target=every),
        build_request(bounds.Callable(sums, vocab_size=3, batched=False), TOKENS),
    ):
        assert bucket_length(kept) is None


def test_long_inputs_and_much_work_keep_their_length(monkeypatch):
    model = build({"num_layers": 1})
    ask = functools.partial(build_request, model)
    lengths = [bucket_length(ask(np.zeros(n, int))) for n in (15, 16, 500, 512, 513)]
    assert lengths == [None, 16, 512, 512, None]
    monkeypatch.setattr(bucket, "WORTH", (0.0, 0.0))
    assert bucket_length(ask(np.zeros(100, int))) is None


def test_lengths_from_40_to_48_compile_two_sets_of_programs():
    model = build({"num_layers": 3, "d_model": 4, "d_ff": 4, "num_heads": 1})
    inputs = [RNG.integers(0, 3, n) for n in (40, 42, 43, 48)]
    ask = functools.partial(bounds.scan, model, rounding="none")
    compiled = Counter(programs(lambda: ask(inputs)))
    del compiled["jit(stage)"]  # JAX's copy of an array
    assert max(compiled.values()) <= 2
    assert {"jit(base_outputs)", "jit(_partial_block)"} <= set(compiled)
    again = programs(lambda: ask([x[::-1].copy() for x in inputs]))
    assert set(again) <= {"jit(stage)"}


@pytest.mark.usefixtures("short")
def test_an_input_beyond_the_position_table_is_refused_though_it_is_padded():
    model = build({"mask": "future"})
    model = dataclasses.replace(model, position=jm.PositionTable(np.ones((11, 8))))
    for ask in (bounds.compute_influence, bounds.scan):
        with refused("n = 12 is beyond the model's position"):
            ask(model, TOKENS)

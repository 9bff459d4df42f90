"""Two layers by products of matrices: beside vectors of pairs, and planted errors."""

import dataclasses
import functools
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import bounds
import jax_models as jm
from bounds.influence import LogProbability, checkpoint
from bounds.influence.blocks import kernel
from bounds.influence.build import build_request
from bounds.influence.methods import bucket
from bounds.influence.methods.incremental import INCREMENTAL
from bounds.influence.propagation.change_block import change_block, prepare
from bounds.influence.propagation.first_layer import take_rows
from bounds.influence.two_layers import above, block, choice, columns, flips
from bounds.influence.two_layers.block import product_block
from bounds.numbers.rounding import unit_roundoff
from tests.architecture import random_model
from tests.bounds.influence.expect import meet
from tests.bounds.influence.models import SHAPE, edit_weights, scaled_weights

pytestmark = pytest.mark.usefixtures("forced")

N, ROWS = 21, 8
# Roundoffs by which two ways of sums over N rows may differ, of the largest change.
ROUNDOFFS = 64 * N


@pytest.fixture
def forced(monkeypatch):
    """Products for inputs of any length and models of any sizes, by few rows at a time."""
    monkeypatch.setattr(kernel, "SORTED", 4)
    monkeypatch.setattr(kernel, "SORTED_EACH", 0)
    monkeypatch.setattr(bucket, "LONGEST", 0)
    monkeypatch.setattr(choice, "SHORTEST", 0)
    monkeypatch.setattr(choice, "BLOCK", 8)
    monkeypatch.setattr(choice, "CHEAPER", 1e9)
    monkeypatch.setattr(choice, "ROWS", ROWS)


def draw(factors=(1.0, 1.0), **options):
    """A random model, the queries of each layer times a factor."""
    model = random_model(3, **{**SHAPE, "num_layers": 2, **options})
    for depth, factor in enumerate(factors):
        model = scaled_weights(model, depth, query=factor, query_bias=factor)
    return model


def pose(model, **question):
    tokens = np.random.default_rng(1).integers(0, model.vocab_size, N)
    return build_request(model, tokens, include_query=True, **question)


def nothing(*given, **options):
    found, ties = change_block(*given, **options)
    return found * jnp.nan, ties


def compute(request):
    """Changes by products alone, NaN where they lost digits; by both; and by vectors."""
    both: Any = INCREMENTAL.kernel(request)
    vectors = both.again
    assert (both.function, vectors.function) == (product_block, change_block)
    again = dataclasses.replace(vectors, function=nothing)
    for program in (dataclasses.replace(both, again=again), both, vectors):
        blocks = kernel.run_kernel(program, request)
        yield np.concatenate([x.changes[:, 0] for x in blocks])


def off(request):
    """Largest difference from vectors in roundoffs of the largest change; the lost."""
    found, both, expected = compute(request)
    lost = np.isnan(found).any(axis=1)
    np.testing.assert_array_equal(both[~lost], found[~lost])
    np.testing.assert_array_equal(np.isfinite(both), True)
    unit = unit_roundoff(str(request.model.dtype)) * np.abs(expected).max()
    assert np.abs(both - expected)[lost].max(initial=0) <= ROUNDOFFS * unit
    return np.abs(found - expected)[~lost].max(initial=0) / unit, lost


BY_ROW = jm.PowerTemperature(1.5, -0.3, "position")
# The first and the last run where time is short.
SETTINGS: dict[str, Any] = {
    "a window": {"mask": "future", "window": 4},
    "no mask": {},
    "future": {"mask": "future"},
    "strict future": {"mask": "strict_future"},
    "strict past": {"mask": "strict_past", "query": 2},
    "strict past, a query that sees nothing": {"mask": "strict_past"},
    "a strict window": {"mask": "strict_future", "window": 3},
    "an earlier query": {"query": 9},
    "concatenated heads": {"combine": "concat"},
    "five symbols": {"vocab_size": 5},
    "float32": {"dtype": "float32"},
    "a temperature by position": {"mask": "future", "temperature": BY_ROW},
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_products_find_what_vectors_find(setting):
    options = dict(SETTINGS[setting])
    query = options.pop("query", -1)
    request = pose(draw(**options), query=query)
    apart, lost = off(request)
    assert apart <= ROUNDOFFS
    assert lost.mean() < 0.5


def test_columns_that_lost_digits_are_computed_again():
    apart, lost = off(pose(draw(factors=(2.5, 2.5))))
    assert apart <= ROUNDOFFS
    assert 0 < lost.sum() < lost.size


def test_all_are_left_to_vectors_where_the_first_block_loses_many(monkeypatch):
    monkeypatch.setattr(kernel, "MOST_AGAIN", -1)
    apart, lost = off(pose(draw()))
    assert apart == 0
    assert lost.all()


@pytest.mark.parametrize("factor", [5.0, 20.0])
def test_pairs_with_large_shares_are_taken_apart(factor, plant):
    plant(flips, "FEW_FLIPS", -1)
    apart, lost = off(pose(draw(factors=(factor, 1.0))))
    assert apart <= ROUNDOFFS
    assert not lost.all()


def test_too_many_flips_are_left_to_vectors(plant):
    request = pose(draw())
    plant(flips, "MOST_FLIPS", 1)
    plant(flips, "SLACK", 1e9)
    assert off(request)[1].all()


@pytest.mark.parametrize(
    "options",
    [
        {"layer_norm": "pre"},
        {"activation": "gelu"},
        {"gated": True},
        {"score": "additive"},
        {"weighting": "average_hard"},
        {"num_layers": 3, "factors": (1.0,) * 3},
    ],
    ids=lambda x: next(iter(x)),
)
def test_other_models_keep_vectors(options):
    assert not choice.by_products(pose(draw(**options)))


def test_neurons_that_nothing_moves_are_no_flips(plant):
    still = lambda x: x.at[:4].set(0)
    request = pose(edit_weights(draw(), 0, w1=still, b1=still))
    plant(flips, "MOST_FLIPS", 3 * ROWS)
    assert not off(request)[1].all()


def test_few_of_many_changes_of_symbol_keep_vectors():
    # One position for each of the 20 changes of five symbols.
    model = draw(vocab_size=5)
    tokens = np.arange(20) // 4
    asked = build_request(model, tokens, include_query=True)
    rows = np.arange(0, 80, 4) + np.arange(20) % 4
    assert choice.by_products(asked)
    assert not choice.by_products(asked.only(rows))


def enclose_alike(found, expected):
    """Checks that two answers' enclosures of every influence meet."""
    np.testing.assert_array_equal(found.enclosed, expected.enclosed)
    assert meet(found, expected)


def enumerate_all(model, tokens, **question):
    given = {"rounding": "all", "include_query": True, **question}
    return bounds.compute_influence(model, tokens, method="exhaustive", **given)


@functools.cache
def enumerated():
    """Influences of the model as drawn."""
    return enumerate_all(draw(), pose(draw()).tokens)


def carry(model, tokens, **question):
    """Influences with radii by products where these apply."""
    given = {"method": "incremental", "rounding": "all", "include_query": True}
    return bounds.compute_influence(model, tokens, **{**given, **question})


def test_a_limit_that_products_exceed_leaves_vectors():
    request = pose(draw())
    limit = int(choice.product_sizes(request).held)
    while choice.by_products(dataclasses.replace(request, memory_limit=limit)):
        limit -= 256
    run = bounds.Run(memory_limit=limit)
    enclose_alike(carry(request.model, request.tokens, run=run), enumerated())


class EveryOther:
    """A share that every other comparison finds exceeded."""

    exceeded = True

    def __lt__(self, share):
        self.exceeded = not self.exceeded
        return self.exceeded


def test_runs_of_a_radius_may_disagree_on_products(monkeypatch):
    model, tokens = draw(), pose(draw()).tokens
    monkeypatch.setattr(kernel, "MOST_AGAIN", EveryOther())
    enclose_alike(carry(model, tokens), enumerated())


QUESTIONS: dict[str, Any] = {
    "logits": {"target": "logits"},
    "a log-probability": {"target": LogProbability(1)},
    "some positions": {"positions": [2, 3, 11]},
    "one substitute": {"symbols": [1]},
    "the query left out": {"include_query": False},
    "an earlier query": {"query": 9},
    "a mesh of devices": {"run": bounds.Run(mesh=bounds.device_mesh(2))},
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_question_is_that_of_enumeration(name):
    model, tokens, question = draw(num_classes=2), pose(draw()).tokens, QUESTIONS[name]
    found = carry(model, tokens, **question)
    asked = {k: x for k, x in question.items() if k != "run"}
    enclose_alike(found, enumerate_all(model, tokens, **asked))


def assert_same_maximum(found, expected):
    assert found.kind == "exact"
    assert (found.position, found.symbol) == (expected.position, expected.symbol)
    assert found.max_lower <= expected.max_upper
    assert expected.max_lower <= found.max_upper


def test_the_largest_values_have_the_radii_of_enumeration():
    model, tokens = draw(factors=(2.5, 2.5)), pose(draw()).tokens
    found = carry(model, tokens, rounding="top")
    assert_same_maximum(found, enumerate_all(model, tokens))


def test_float32_proposes_by_products_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_SAVES", 0)
    model, tokens, steps = draw(), pose(draw()).tokens, []

    def stop(done, total):
        steps.append((done, total))
        if len(steps) == 1:
            raise KeyboardInterrupt

    method = bounds.Proposed("float32", method="incremental")
    run = bounds.Run(checkpoint=tmp_path / "state", progress=stop)
    question = {"method": method, "rounding": "auto", "run": run}
    with pytest.raises(KeyboardInterrupt):
        carry(model, tokens, **question)
    assert_same_maximum(carry(model, tokens, **question), enumerated())
    (first, total), (second, _) = steps[:2]
    assert 0 < first < second <= total == 2 * N


def test_progress_comes_with_every_sorted_set_of_blocks():
    model, tokens, steps = draw(), pose(draw()).tokens, []
    run = bounds.Run(progress=lambda done, total: steps.append(done))
    carry(model, tokens, rounding="none", run=run)
    assert steps == [32, 42]


def test_short_and_long_inputs_and_wide_blocks_keep_vectors(monkeypatch):
    request = pose(draw())
    assert choice.by_products(request)
    monkeypatch.setattr(choice, "CHEAPER", 4)
    assert not choice.by_products(pose(draw(d_ff=256)))
    monkeypatch.setattr(choice, "LONGEST", N - 1)
    assert not choice.by_products(request)
    monkeypatch.setattr(choice, "LONGEST", N)
    monkeypatch.setattr(choice, "SHORTEST", N // 3 + 1)
    assert not choice.by_products(request)


def test_products_count_half_the_passes_of_vectors(monkeypatch):
    request = pose(draw())
    cost = INCREMENTAL.cost(request)
    monkeypatch.setattr(choice, "LONGEST", N - 1)
    assert INCREMENTAL.cost(request) - 1 == 2 * (cost - 1)


def unread(x):
    """Weights that do not read coordinate 0."""
    return x.at[..., 0].set(0)


def read_one_score(model, scores, **parts):
    """The model whose first layer's keys have one score, divided as it divides them."""
    scores = jnp.asarray(scores) * np.sqrt(model.layers[0].attention.key_width)
    one = lambda x: jnp.zeros_like(x).at[:, 0].set(1)
    parts |= {"query": jnp.zeros_like, "query_bias": one}
    return edit_weights(model, depth=0, **parts), scores


def dominate():
    """A request in which one column keeps nearly all weight of every row."""
    model, scores = read_one_score(
        draw(), [0.0, 27.0, 7.0], value=lambda x: x.at[:, :, :2].set(0)
    )
    of_symbols = lambda x: jnp.zeros_like(x).at[:, 0, :3].set(scores)
    model = edit_weights(model, depth=0, key=of_symbols)
    one_hot = jnp.eye(3, model.width)
    model = dataclasses.replace(model, embedding=one_hot, position=None)
    tokens = (np.arange(N) == 5).astype(int)
    return build_request(model, tokens, include_query=True)


def raise_sinks(last=1.0, **options):
    """A request in which the score of a column with nearly all weight rises.

    Values do not change, so that little of the products of shares and values is left.
    Under a window of 3 the last row reads a row that sees one sink, and no sink.
    """
    first = lambda x: jnp.zeros_like(x).at[:, 0, 0].set(1)
    parts = {"key": first, "value": unread, "w1": unread}
    model, scores = read_one_score(draw(**options), [0.0, 20.0, 22.0], **parts)
    watched = {"query": unread, "key": unread, "value": lambda x: last * unread(x)}
    model = edit_weights(model, depth=1, **watched)
    embedding = model.embedding.at[2].set(model.embedding[1]).at[:, 0].set(scores)
    model = dataclasses.replace(model, embedding=embedding, position=None)
    tokens = np.isin(np.arange(N), [0, 2, 4, 6, 8, 10, 12, 16]).astype(int)
    given = {"positions": np.flatnonzero(tokens), "symbols": [2]}
    return build_request(model, tokens, include_query=True, **given)


def stand_at_kinks():
    """A request in which two neurons stand at 0 exactly until the symbol 2 comes."""
    model, first = draw(position=None), jnp.eye(draw().width)[0]
    model = edit_weights(
        model,
        depth=0,
        value=lambda x: x.at[0, 0].set(first),
        value_bias=lambda x: x.at[0, 0].set(0),
        output=lambda x: x.at[0].set(first),
        output_bias=lambda x: x.at[0].set(0),
        w1=lambda x: x.at[0].set(first).at[1].set(-first),
        b1=lambda x: x.at[:2].set(0),
    )
    embedding = model.embedding.at[:, 0].set(jnp.asarray([0.0, 0.0, 1.0]))
    model = dataclasses.replace(model, embedding=embedding)
    return build_request(model, np.arange(N) % 2, include_query=True)


def arrive_from_nothing():
    """A request in which rows with weights that underflow above get scores near others'.

    The score of a row above falls with the first layer's weight for the symbol 2, which
    stands once and is replaced.
    """
    model = draw(mask="future", position=None, dtype="float32")
    one = jnp.eye(model.width, dtype="float32")[0]
    size = model.layers[1].attention.key_width ** 0.5
    below = {
        **dict.fromkeys(("query", "key", "w1"), unread),
        "value": lambda x: unread(x).at[0, 0].set(one),
        "output": lambda x: x.at[:, 0].set(0).at[0].set(one),
        "w2": lambda x: x.at[0].set(0),
    }
    watched = {
        "query": lambda x: unread(x).at[:, 0].set(0),
        "query_bias": lambda x: x.at[:, 0].set(1),
        "key": lambda x: unread(x).at[:, 0].set(one * size),
        "value": unread,
    }
    model = edit_weights(edit_weights(model, 0, **below), 1, **watched)
    embedding = model.embedding.at[:, 0].set(jnp.asarray([0, 0, -3000], "float32"))
    model = dataclasses.replace(model, embedding=embedding)
    tokens = np.where(np.arange(N) == 5, 2, np.arange(N) % 2)
    return build_request(model, tokens, positions=[5], include_query=True)


def test_rows_whose_weight_underflows_arrive():
    apart, lost = off(arrive_from_nothing())
    assert apart <= ROUNDOFFS
    assert not lost.any()


def plain():
    return pose(draw())


def sharpen():
    return pose(draw(factors=(1.0, 20.0)))


def take_apart():
    return pose(draw(factors=(5.0, 1.0)))


def last_is_zero(real, *given):
    """Results of which the last is 0: no correction, or nothing lost."""
    *kept, last = real(*given)
    return *kept, jnp.zeros_like(last)


def skip_a_tile(real, layer, last):
    """Rows as the query row reads them, the second tile unseen."""
    above = real(layer, last)
    return above._replace(old=above.old.at[:, ROWS : 2 * ROWS].set(0))


def drop_small_weights(real, old, offset, change):
    """New weights of rows, 0 of those whose old weight is no normal number."""
    return real(jnp.where(offset < 0, 0, old), offset, change)


def clip(real, log_weight):
    """New weights, relative to the old largest, that arrive as at most 1."""
    return real(jnp.minimum(log_weight, 0))


def lean(real, u, z):
    return jnp.where(u == 0, real(u, z) - z, real(u, z))


def mark_none(_, first, key_change):
    """No column marked as one that leaves a row little of its weight."""
    return jnp.zeros(first.store.length, bool)


# Requests, and what is planted: a function of the right one and its arguments, or a number.
PLANTED: dict[str, tuple[Any, Any, str, Any]] = {
    "a flip is not corrected": (plain, flips.Flips, "find", last_is_zero),
    "flips of a pair with a large share are not corrected": (
        *(take_apart, flips.Flips, "find_pairs"),
        last_is_zero,
    ),
    "a column that lost digits is kept": (sharpen, above.Sums, "read", last_is_zero),
    "a column that dominates is kept": (dominate, columns, "_dominates", mark_none),
    "a change of the query row that lost digits is kept": (
        *(lambda: raise_sinks(last=0.0), columns),
        *("LOSS", 1e300),
    ),
    "sums over rows that lost digits are kept": (
        *(lambda: raise_sinks(mask="future", window=3), above),
        *("LOSS", 1e300),
    ),
    "the weight of an arriving column is clipped": (take_apart, columns, "exp", clip),
    "a neuron at 0 is called active": (stand_at_kinks, flips, "_bent", lean),
    "a row whose weight underflows does not arrive": (
        *(arrive_from_nothing, above),
        *("new_weights", drop_small_weights),
    ),
    "a tile is skipped": (plain, block.Above, "of", skip_a_tile),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_is_noticed(name, plant):
    make, module, attribute, wrong = PLANTED[name]
    plant(flips, "FEW_FLIPS", 2)
    assert off(make())[0] <= ROUNDOFFS
    real = getattr(module, attribute)
    planted = (lambda *given: wrong(real, *given)) if callable(wrong) else wrong
    plant(module, attribute, planted)
    assert off(make())[0] > 4 * ROUNDOFFS


def test_scalars_of_columns_that_dominate_no_row_keep_their_digits():
    """Beside sums of exponentials in extended precision."""
    model = draw(factors=(40.0, 1.0))
    request, at = pose(model), jnp.arange(N, dtype=jnp.int32)
    first = prepare(model, jnp.asarray(request.tokens), request.query).first
    summary, keys = first.summary, first.store.keys
    weight = jnp.where(summary.top_index == at, 0, summary.top_weight)
    # The score of the heaviest column falls to 0 where it is most of the weight.
    heaviest = summary.top_index.ravel()[weight.argmax()]
    change, stays = -keys[:, heaviest], jnp.zeros_like(first.store.values[:, 0])
    given = at, keys, None, change, stays
    below = model.layers[0]
    rows = columns.PairRows.of(below, first, given, at, take_rows(first, at))
    found = np.asarray(rows.share(given))
    q, k, dk = (np.asarray(x, np.longdouble) for x in (first.queries, keys, change))
    score, moved = np.einsum("hje,hne->hjn", q, k), np.einsum("hje,he->hj", q, dk)
    each = np.exp(score - score.max(axis=-1, keepdims=True))
    off = np.zeros(found.shape)
    for i in range(N):
        others = np.delete(each, i, axis=-1).sum(axis=-1)
        own = each[:, :, i]
        exact = own * np.exp(np.maximum(moved, 0)) / (others + own * np.exp(moved))
        off[:, :, i] = np.abs(found[:, :, i] / exact - 1)
        off[:, i, i] = 0  # the row itself, which pairs leave out
    marked = np.asarray(columns._dominates(first, change))
    assert off[:, :, ~marked].max() < 1e-11
    assert off[:, :, marked].max() > 1e-8

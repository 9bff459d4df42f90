"""`screened`: the maximum is that of `exhaustive`, or the enclosure says that it is not."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jax_models as jm
from bounds import Screened
from bounds.influence import InfluenceRequest, choice, compute_influence
from bounds.influence.rounding import FEWEST
from bounds.influence.screening import ladder
from bounds.influence.screening.screen import prepare_screen
from bounds.influence.substitution import list_substitutions
from bounds.numbers.kind import ROUNDING
from bounds.rounding.moved_inputs import RUNS
from jax_models.model.reweight import with_dtype
from tests.bounds.influence.asking import ask
from tests.bounds.influence.blocks.test_block_memory import held
from tests.bounds.influence.expect import meet, refused
from tests.bounds.influence.models import build

N = 24
TOKENS = np.random.default_rng(0).integers(0, 3, N)


def small(scale=0.5, seed=0, **case):
    options = {"num_layers": 3, "d_ff": 8, "num_classes": 2, "scale": scale}
    return build({**options, **case}, seed)


def assert_encloses(found, exact):
    """Every enclosure holds the exact one, and the maximum is where it is said to be."""
    assert meet(found, exact)
    assert found.max_lower <= exact.max_upper
    assert found.max_upper >= exact.max_lower
    if not found.uncertified:
        assert (found.position, found.symbol) == (exact.position, exact.symbol)
        assert found.max == pytest.approx(exact.max, rel=1e-8)
        assert found.max_upper - found.max_lower < 1e-8 * found.max


def both(model, tokens=TOKENS, **question):
    """The screen's answer and the exhaustive one, after comparing them."""
    found = ask(model, tokens, method="screened", **question)
    mine = ("rtol", "budget", "progress", "rounding")
    question = {k: v for k, v in question.items() if k not in mine}
    exact = compute_influence(model, tokens, method="exhaustive", **question)
    assert_encloses(found, exact)
    return found, exact


def compare(*given, **question):
    return both(*given, **question)[0]


def test_the_maximum_is_exact_with_few_evaluations():
    found = compare(small(), include_query=True)
    assert (found.kind, found.hypotheses) == ("exact", (ROUNDING,))
    assert found.uncertified == 0
    # The query's own two, and eight of the largest estimates.
    assert found.evaluated <= 10 < found.substitutions
    assert [level.rank for level in found.levels] == [0]
    assert "[exact]" in repr(found)


@pytest.mark.parametrize("seed", [1, 3])
def test_the_largest_estimate_is_evaluated_first(seed, monkeypatch):
    """Where attention is peaked errors are large, and upper ends in their order."""
    monkeypatch.setattr(ladder, "LADDER", ladder.LADDER[:1])
    # The query's own two, and the two largest estimates.
    found, exact = both(small(1.0, seed), include_query=True, budget=4)
    assert found.uncertified > 30, "the errors are too small to tell"
    assert (found.kind, found.evaluated) == ("enclosure", 4)
    above = (found.upper > found.max_lower).sum()
    assert found.uncertified == above - (found.lower == found.max_lower).sum()
    assert found.max <= found.max_upper
    assert "enclosure" in repr(found)
    others = slice(0, N - 1)
    at = int(np.nanargmax(exact.position_upper[others]))
    assert found.position_lower[at] >= exact.position_lower[at] * (1 - 1e-8)


@pytest.fixture
def enumerating(monkeypatch):
    """What one level leaves is enumerated, however few."""
    monkeypatch.setattr(ladder, "LADDER", ladder.LADDER[:1])
    monkeypatch.setattr(ladder, "MANY", 1)
    monkeypatch.setattr(ladder, "block_of", lambda *_: 12)  # asked at a time


@pytest.mark.parametrize("rounding", ["all", "top"])
def test_without_a_budget_what_is_left_is_enumerated(rounding, enumerating):
    done = []
    asked = {"budget": None, "progress": lambda *x: done.append(x)}
    found = compare(small(scale=2.0), rounding=rounding, **asked)
    assert (found.kind, found.rounding) == ("exact", rounding)
    assert done[-1][0] == done[-1][1]
    there = ~np.isnan(found.lower)
    assert (found.enclosed[there].sum() == FEWEST) == (rounding == "top")
    assert found.enclosed[found.position, found.symbol]


def test_a_screen_without_radii_would_be_noticed(monkeypatch):
    """Where float32 rounds estimates by more than their errors."""
    model, tokens = with_dtype(small(scale=0.02), "float32"), TOKENS
    exact = compute_influence(with_dtype(model, "float64"), tokens, method="exhaustive")
    monkeypatch.setattr(ladder, "LADDER", ladder.LADDER[:1])

    def outside(rounding):
        asked = {"method": Screened(budget=2), "rounding": rounding}
        found = compute_influence(model, tokens, **asked)
        return (found.lower > exact.upper).sum() + (found.upper < exact.lower).sum()

    assert outside("all") == 0
    assert outside("top") > 0


def test_auto_screens_where_the_maximum_alone_is_asked(monkeypatch):
    monkeypatch.setattr(ladder, "LADDER", ladder.LADDER[:1])
    largest = functools.partial(ask, small(scale=2.0), TOKENS, keep="max")
    exact = largest(rounding="none")
    assert exact.method == "partial"
    monkeypatch.setattr(choice, "SCREEN_PAYS", 0.1)
    monkeypatch.setattr(choice, "WORTH", (0, 0))
    found = largest()
    assert found.method == "screened"
    assert "what the screen leaves is enumerated" in found.reason
    assert found.uncertified == 0
    assert (found.position, found.symbol) == (exact.position, exact.symbol)
    assert found.max == pytest.approx(exact.max, rel=1e-8)


@pytest.mark.parametrize(
    "case",
    [
        {"layer_norm": "pre", "d_ff": 32},
        {"layer_norm": "post", "d_model": 32, "num_layers": 4},
        {"gated": True, "d_ff": 64},
    ],
    ids=str,
)
def test_what_a_screen_holds_is_below_its_model(case):
    """Shapes alone, of as many rows as make all else small."""
    model, tokens = jax.eval_shape(lambda: small(**case)), np.resize(TOKENS, 4096)
    pairs = list_substitutions(tokens, 3, query=0)
    request = InfluenceRequest(model, tokens, 0, "activation", pairs)
    prepare = lambda model: prepare_screen(model, jnp.asarray(tokens), 0, "activation")
    each = (1 + RUNS) * held(jax.eval_shape(prepare, model))
    assert each <= ladder.held_bytes(request) <= 3 * each


@pytest.mark.slow
def test_a_tolerance_stops_early():
    wide = compare(small(), rtol=10.0, budget=100)
    assert wide.max_upper / wide.max_lower - 1 <= 10.0
    assert len(wide.levels) == 1


@pytest.mark.slow
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_bounds_nothing(bad, monkeypatch):
    screen = ladder.screen_block

    def broken(*arguments, **options):
        found, _ = screen(*arguments, **options)
        error = jnp.where(arguments[1] == 3, bad, found.error)
        return dataclasses.replace(found, error=error), None

    monkeypatch.setattr(ladder, "screen_block", broken)
    found = compute_influence(small(), TOKENS, method=Screened(budget=8))
    assert found.uncertified >= 1
    assert found.max_upper == np.inf


@pytest.mark.parametrize("present", [False, True])
def test_what_overflows_is_refused(present):
    model = small()
    model = dataclasses.replace(model, embedding=model.embedding.at[2].mul(1e200))
    tokens = TOKENS if present else np.where(TOKENS == 2, 1, TOKENS)
    with refused("not a finite number"):
        compute_influence(model, tokens, method=Screened(budget=100))


@pytest.mark.slow
def test_where_nothing_reaches_the_query_the_maximum_is_zero():
    found = compute_influence(small(mask="future"), TOKENS, method="screened", query=0)
    assert (found.max, found.max_upper, found.kind) == (0.0, 0.0, "exact")
    assert found.position == 1
    assert found.evaluated == ladder.FEWEST_IN_BLOCK  # one block


@pytest.mark.slow
@pytest.mark.parametrize("layer_norm", ["none", "pre", "post"])
@pytest.mark.parametrize("mask", ["none", "future", "strict_past"])
@pytest.mark.parametrize("num_layers", [2, 3, 4, 5])
def test_random_models_are_enclosed(layer_norm, mask, num_layers):
    case = {"layer_norm": layer_norm, "mask": mask, "num_layers": num_layers}
    query = 0 if mask == "strict_past" else N - 1
    for seed, scale in enumerate((0.3, 0.7, 1.5)):
        for target in ("activation", "logits"):
            model = small(scale, seed, final_norm=layer_norm == "pre", **case)
            compare(model, query=query, target=target)


@pytest.mark.slow
def test_screens_of_long_inputs_close():
    model = small(0.7, d_model=16, d_ff=32, vocab_size=2)
    found = compare(model, np.random.default_rng(0).integers(0, 2, 512))
    assert found.kind == "exact"
    assert found.evaluated <= 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mask", "position", "most"), [("none", 26, 25), ("future", 1, 148)]
)
def test_few_substitutions_are_left_of_peaked_attention(
    mask, position, most, monkeypatch
):
    """n = 1024, scale 1, the third level: of 1023, where 461 and causally 237 were."""
    monkeypatch.setattr(ladder, "LADDER", ladder.LADDER[2:])
    shape = {"num_heads": 2, "d_model": 16, "d_ff": 32, "vocab_size": 2}
    model = jm.random_transformer(
        jax.random.key(0), num_layers=3, **shape, mask=mask, dtype="float64"
    )
    tokens = np.asarray(jax.random.randint(jax.random.key(1), (1024,), 0, 2))
    found = compute_influence(model, tokens, method=Screened(budget=1))
    exact = compute_influence(model, tokens, positions=[position], method="exhaustive")
    # The largest estimate is the maximum, which one evaluation meets.
    assert (found.position, found.evaluated) == (position, 1)
    assert found.max == pytest.approx(exact.max, rel=1e-9)
    assert found.uncertified < most

"""What is ranked in half precision and decided in float64 from the top."""

from typing import Any

import numpy as np
import pytest

from bounds import device_mesh
from bounds.influence import compute_influence
from bounds.influence.moved import Readings
from bounds.numbers.kind import ROUNDING
from bounds.rounding import ranked
from tests.bounds.influence.asking import as_values
from tests.bounds.influence.models import build

ONE_LAYER: dict[str, Any] = {"num_layers": 1, "mask": "none", "vocab_size": 24}
SHARED = build(ONE_LAYER, seed=7)
TOKENS = np.random.default_rng(0).integers(0, 24, 12)
MAXIMUM = ("max", "position", "symbol", "method")
INCREMENTAL: dict[str, Any] = {"method": "incremental"}


def ask(model=SHARED, **question) -> Any:
    return compute_influence(model, TOKENS, **as_values(**question))


def maximum(found) -> tuple[Any, ...]:
    return tuple(getattr(found, name) for name in MAXIMUM)


@pytest.fixture(scope="module")
def plain():
    return ask(**INCREMENTAL)


def values_of(found) -> Any:
    """What float64 finds, in the order of substitutions."""
    middle = 0.5 * (found.lower + found.upper)
    return middle[~np.isnan(middle)]


def rank(monkeypatch, estimates) -> Any:
    """What is found where these are the estimates in half precision [P]."""
    found = Readings(estimates, np.full(estimates.shape, np.nan), None)
    monkeypatch.setattr(ranked, "_estimate", lambda known, *_: known.add(found))
    return ask(**INCREMENTAL, propose="bfloat16")


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("bfloat16", INCREMENTAL),
        ("bfloat16", {"method": "exhaustive"}),
        ("bfloat16", {"include_query": True}),
        ("bfloat16", {"mesh": device_mesh(2), **INCREMENTAL}),
        ("float16", INCREMENTAL),
        ("bfloat16", {"method": "partial", "layers": 2}),
    ],
    ids=str,
)
def test_what_is_decided_is_that_of_float64(name, question):
    layers = question.get("layers", 1)
    question = {k: v for k, v in question.items() if k != "layers"}
    model = build({**ONE_LAYER, "num_layers": layers}, seed=7)
    plain, found = ask(model, **question), ask(model, **question, propose=name)
    assert maximum(found)[1:] == maximum(plain)[1:]
    assert found.max_lower <= plain.max <= found.max_upper
    assert (found.kind, found.exact, found.uncertified) == (
        "estimated",
        False,
        found.substitutions - found.decided,
    )
    assert ranked.SAMPLE <= found.decided < found.substitutions
    assert found.enclosed.sum() == found.decided
    met = (found.lower <= plain.upper) & (plain.lower <= found.upper)
    assert met[found.enclosed].all()
    rest = ~np.isnan(plain.lower) & ~found.enclosed
    estimates = found.lower[rest]
    np.testing.assert_array_equal(estimates, found.upper[rest])
    off = np.abs(estimates / plain.upper[rest] - 1)
    assert 0 < off.max() < ranked.MARGIN * found.measured_error.max
    assert estimates.max() < found.max
    told = f"{found.decided} of {found.substitutions} decided in float64"
    assert f"all ranked in {name}, {told}" in found.reason
    assert f"{found.decided} decided in float64, the others estimated" in repr(found)
    assert found.hypotheses == (ROUNDING, ranked.RANKED)


def test_a_hidden_maximum_is_found_within_the_margin(plain, monkeypatch):
    """Estimates are 1 % too large, the maximum's 3 % too small: three are above it."""
    values = values_of(plain)
    estimates = 1.01 * values
    estimates[np.argmax(values)] *= 0.97 / 1.01
    assert (estimates > estimates[np.argmax(values)]).sum() == 3
    monkeypatch.setattr(ranked, "SAMPLE", 1)
    found = rank(monkeypatch, estimates)
    assert maximum(found) == maximum(plain)
    assert found.kind == "estimated"
    assert found.measured_error.max == pytest.approx(0.03)
    within = estimates >= (1 - 0.03 * ranked.MARGIN) * found.max
    assert found.decided == within.sum() + 1, "and the sample"
    monkeypatch.setattr(ranked, "MARGIN", 0)
    missed = rank(monkeypatch, estimates)
    assert missed.max < plain.max
    assert missed.decided < found.decided


@pytest.mark.parametrize("estimate", ["infinite", "none of its own"])
def test_what_may_be_anything_is_decided(estimate, plain, monkeypatch):
    """One that float32 has no number for, or all of them where errors tell nothing."""
    values = values_of(plain)
    if estimate == "infinite":
        least = int(np.argmin(values))
        found = rank(monkeypatch, np.where(values == values[least], np.inf, values))
        assert (found.measured_error.max < 1e-9, found.kind) == (True, "estimated")
        pairs = np.argwhere(~np.isnan(plain.lower))
        at = tuple(pairs[least])
        assert found.enclosed[at]
        assert found.lower[at] <= values[least] <= found.upper[at]
    else:
        found = rank(monkeypatch, np.full(values.size, values.max()))
        assert found.decided == found.substitutions
        assert (found.kind, found.measured_error) == ("exact", None)
        assert found.hypotheses == (ROUNDING,)
        np.testing.assert_array_equal(found.upper, plain.upper)
    assert maximum(found) == maximum(plain)

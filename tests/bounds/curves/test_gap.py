"""Where the corrected constant falls, and how far it is from the exact influence."""

import math

import pytest

from bounds.curves.curve import BoundCurve
from bounds.curves.gap import corrected_gap, describe_gap
from bounds.store.table import Table


def row(n, corrected, half, influence=None):
    constants = {"n": n, "log10_corrected": corrected, "log10_half_weight": half}
    if influence is None:
        return constants
    ends = {"influence_lower": influence, "influence_upper": influence}
    kind = {"exact": True, "kind": "exact", "method": "incremental"}
    return {**constants, **ends, **kind, "input": 0}


def curve(*rows, beyond=()):
    return BoundCurve("softmax", "activation", Table(rows), beyond=Table(beyond))


def test_the_gap_is_that_of_the_last_length_measured():
    rows = row(10, 2.0, 1.5, 0.1), row(100, 1.0, 1.6, 0.001)
    gap = corrected_gap(curve(*rows, beyond=[row(10**6, -3.0, 1.7)]))
    assert gap.last == 100
    assert gap.decades == pytest.approx(4)
    assert (gap.end, gap.at_end) == (10**6, -3.0)
    assert gap.bend == 1.6, "the first length that reaches its own"


def test_a_bend_beyond_every_known_length_is_none():
    rows = [row(10, 2.0, 16.0, 0.1)]
    gap = corrected_gap(curve(*rows, beyond=[row(1000, 2.0, 16.2)]))
    assert (gap.bend, gap.half_weight) == (None, 16.2)
    (said,) = describe_gap(curve(*rows, beyond=[row(1000, 2.0, 16.2)]))
    assert "10^16.2, beyond n = 1000: the corrected constant does not fall" in said
    assert "At n = 10 it is 3.0 decades above" in said


def test_of_no_influence_there_is_no_gap():
    some = curve(row(10, 2.0, 0.5, 0.0))
    assert corrected_gap(some).decades is None
    (said,) = describe_gap(some)
    assert "decades" not in said


def test_without_a_constant_nothing_is_said():
    for one in (
        curve(),
        curve(row(10, None, None, 0.1)),
        curve(row(10, 2.0, None, 0.1)),
    ):
        assert corrected_gap(one) is None
        assert describe_gap(one) == []
    assert math.isfinite(corrected_gap(curve(row(10, 2.0, 3.0, 0.1))).at_end)

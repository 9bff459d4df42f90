"""Exponents: what is fitted, and what is counted."""

import numpy as np
import pytest

from benchmarks import scaling
from benchmarks.operations import Outline
from bounds.influence.build import build_request
from bounds.influence.methods.incremental import INCREMENTAL
from tests.benchmarks.settings import ONCE

CONFIG = {**ONCE, "axis": "n at L=2", "layers": 2, "n": 6, **scaling.SIZES}


@pytest.mark.parametrize("exponent", [0, 1, 2.5])
def test_a_power_is_found_with_no_error(exponent):
    sizes = [3, 6, 12, 24]
    fit = scaling.fit_exponent(sizes, [0.7 * size**exponent for size in sizes])
    assert fit.slope == pytest.approx(exponent, abs=1e-12)
    assert fit.last == pytest.approx(exponent, abs=1e-12)
    assert fit.error < 1e-12


def test_the_standard_error_is_that_of_least_squares():
    sizes, rng = np.array([1.0, 2, 4, 8, 16]), np.random.default_rng(0)
    values = np.exp(rng.normal(size=5)) * sizes**2
    fit = scaling.fit_exponent(sizes, values)
    design = np.stack([np.ones(5), np.log(sizes)], axis=1)
    solution, residual, *_ = np.linalg.lstsq(design, np.log(values))
    covariance = residual[0] / 3 * np.linalg.inv(design.T @ design)
    assert fit.slope == pytest.approx(solution[1], rel=1e-12)
    assert fit.error == pytest.approx(np.sqrt(covariance[1, 1]), rel=1e-12)


def outline_of(config):
    model, tokens = scaling.random_model(config), scaling.random_tokens(config)
    return Outline.of(INCREMENTAL, build_request(model, tokens))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name for name in scaling.AXES if name not in ("L", "n at L=3")]
)
def test_operations_grow_with_an_exponent_that_is_stated(name):
    axis, values, sizes = scaling.AXES[name], [], []
    for factor in (2, 4, 8):
        config = {**CONFIG, **axis.grow(factor)}
        values.append(scaling.influence_operations(outline_of(config)))
        sizes.append(axis.size(config))
    least, most = axis.influence
    assert least - 0.05 <= scaling.fit_exponent(sizes, values).last <= most + 0.05


def test_rows_become_exponents():
    row = scaling.measure({**CONFIG, "layers": 1})
    ratio = row["influence_seconds"] / row["forward_seconds"]
    assert row["forward_passes"] == ratio
    measured = [
        ({**CONFIG, "n": n}, {name: (n / 6) ** 2 * x for name, x in row.items()})
        for n in (3, 6, 12)
    ]
    head, _, line = scaling.table(measured).splitlines()
    assert head.count("|") == line.count("|")
    assert "| 3 to 12 | 2.00 ± 0.00 (2.00) |" in line
    figure = scaling.draw(measured)
    assert figure.axes[0].get_xlabel() == "length n (tokens), L = 2"
    assert "stated power" in figure.legends[0].get_texts()[-1].get_text()
    assert len(scaling.table(measured[1:]).splitlines()) == 2  # one size has failed

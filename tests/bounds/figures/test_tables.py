"""Figures of rows name both axes with the quantity and the unit of these rows."""

import pytest

from bounds.figures.tables import (
    BOUNDS,
    entropy_figure,
    lipschitz_figure,
    loss_figure,
    simulation_figure,
)
from bounds.store.table import Table
from jax_models.languages.source import Levels

LENGTH = "length n (tokens)"
LOSS_ROWS = [{"step": 0, "loss": 1.0, "optimal": 0.7, "loss_4": 1.4}]
ENTROPY = Table(({"n": 4, "optimal": 0.8, "floor_r1": 0.9, "floor_kind": "exact"},))
LIPSCHITZ = Table(
    tuple(
        {"n": n, "estimate": 1.0, "log10_c1": 2.0, "log10_printed": 99.0}
        for n in (4, 8)
    )
)
SIMULATION = Table(
    (
        {
            **{"n": 4, "temperatures": [0.1, 0.2], "errors": [0.0, 0.1]},
            **{"bounds": [0.1, 0.2], "gap": 1.0, "epsilon": 0.01, "tau_formula": 0.1},
            **{"tau_certificate": 0.1, "bound_certificate": 0.1},
        },
    )
)
FIGURES = {
    "loss": (
        lambda: loss_figure(LOSS_ROWS, (4,), 4, Levels(0.8, 1.0, 1.1)),
        ("step", "cross-entropy (nats per symbol)", "linear", "linear"),
    ),
    "entropy": (
        lambda: entropy_figure(ENTROPY, "dyck2"),
        ("length n (symbols)", "cross-entropy on dyck2 (nats)", "log", "linear"),
    ),
    "lipschitz": (
        lambda: lipschitz_figure(LIPSCHITZ, "activation"),
        (LENGTH, "‖Δy‖ / ‖Δ embedding‖", "log", "log"),
    ),
    "simulation": (
        lambda: simulation_figure(SIMULATION),
        ("temperature τ (score units)", "largest error of an activation", "log", "log"),
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_named_and_scaled(name):
    draw, expected = FIGURES[name]
    (axes,) = draw().axes
    names = axes.get_xlabel(), axes.get_ylabel()
    assert (*names, axes.get_xscale(), axes.get_yscale()) == expected


def test_near_bounds_are_lines_and_far_ones_are_named_above():
    figure = lipschitz_figure(LIPSCHITZ, "activation")
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["estimate of $K_n$: all searches", BOUNDS["c1"]]
    (axes,) = figure.axes
    title = axes.get_title(loc="left")
    assert title == f"beyond the axis, {BOUNDS['printed']}: $10^{{99}}$"
    heights = [list(line.get_ydata()) for line in axes.lines]
    # The line without points is what the legend shows of a kind of bound.
    assert heights == [[1.0] * 2, [100.0] * 2, []]

"""Figures of rows name both axes with the quantity and the unit of these rows."""

import pytest

from bounds.figures.curves import entropy_figure, simulation_figure
from bounds.store.table import Table

ENTROPY = Table(({"n": 4, "optimal": 0.8, "floor_r1": 0.9, "floor_kind": "exact"},))
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
    "entropy": (
        lambda: entropy_figure(ENTROPY, "dyck2"),
        ("length n (symbols)", "cross-entropy on dyck2 (nats)", "log", "linear"),
    ),
    "simulation": (
        lambda: simulation_figure(SIMULATION),
        (
            "temperature τ (score units)",
            "largest error of an activation",
            "log",
            "symlog",
        ),
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_axes_are_named_and_scaled(name):
    draw, expected = FIGURES[name]
    (axes,) = draw().axes
    names = axes.get_xlabel(), axes.get_ylabel()
    assert (*names, axes.get_xscale(), axes.get_yscale()) == expected

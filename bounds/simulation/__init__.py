"""Softmax at a temperature in place of hard attention: certificates and measurements.

`simulate` measures a hard model at one length, finds temperatures by theorem and by
certificate, and runs the twin, the model with softmax at such a temperature;
`simulation_curve` does so at several lengths.
"""

from bounds.simulation.compute import SimulationCurve, simulate, simulation_curve
from bounds.simulation.result import Simulation

__all__ = ["Simulation", "SimulationCurve", "simulate", "simulation_curve"]

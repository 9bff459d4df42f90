"""Radii of rounding: error estimates from runs of a computation with moved inputs."""

from bounds.rounding.radii import moved

__all__ = ["moved"]

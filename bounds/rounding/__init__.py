"""Radii of rounding, from runs of a computation with moved inputs."""

from bounds.rounding.moved_function import moved

__all__ = ["moved"]

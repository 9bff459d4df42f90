"""Radii of rounding: the computation again, with moved inputs."""

from bounds.rounding.moved_function import moved

__all__ = ["moved"]

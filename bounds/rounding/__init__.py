"""Radii of rounding, from runs of a computation with slightly moved inputs."""

from bounds.rounding.radii import moved

__all__ = ["moved"]

"""Radii, estimated bounds on rounding, from runs with slightly moved inputs."""

from bounds.rounding.radii import moved

__all__ = ["moved"]

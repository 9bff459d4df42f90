"""Sweeps of a command over a cross product of its flags; knows nothing of the commands."""

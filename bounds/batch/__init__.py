"""Sweeps of a command over a cross product of its flags, kept in a result store.

A cell is one run of the command with one set of flags. What a cell computes is handed in
as a function: the package knows how cells are named, ordered, estimated, run here or on a
Dask cluster, and exported, and nothing of the commands themselves.
"""

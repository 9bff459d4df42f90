"""Blocks of substitutions computed together: sizes, programs, sharing of devices."""

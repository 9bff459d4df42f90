"""Blocks of substitutions: their sizes, their programs, and devices that share them."""

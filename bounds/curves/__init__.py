"""Influence against length: the curve, and what stands beside it."""

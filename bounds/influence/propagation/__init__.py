"""Exact changes of rows, carried from layer to layer."""

"""Exact changes of rows by a replaced token, carried from layer to layer."""

"""Figures: primitives on arrays, and one declaration per figure."""

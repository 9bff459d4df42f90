"""Figures of results: drawing primitives on arrays, and one function per figure."""

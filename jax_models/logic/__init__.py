"""Temporal logic with counting: syntax, semantics, and formulas made of it."""

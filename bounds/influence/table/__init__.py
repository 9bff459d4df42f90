"""Scans, tables of output changes by edits of an input, and rules that reduce them."""

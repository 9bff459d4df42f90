"""Benchmarks: one question per script, ratios measured in one run, rows in a store."""

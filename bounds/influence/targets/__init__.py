"""Targets of influences and scans: a new one is one file here and one row of `table`."""

"""The table of a scan: its layout, its reductions, the rows watched, and its result."""

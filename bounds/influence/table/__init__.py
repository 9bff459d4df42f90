"""The table of a scan: layout, reductions, values of the input, result, views."""

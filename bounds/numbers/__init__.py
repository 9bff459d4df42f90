"""Numbers of which something is proved: intervals, rounding, norms from above, bounds."""

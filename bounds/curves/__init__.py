"""Largest influence of one symbol against input length: measurements, bounds, fits."""

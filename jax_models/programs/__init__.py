"""Programs compiled to weights: formulas of temporal logic, and B-RASP."""

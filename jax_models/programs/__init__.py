"""Programs compiled to weights: formulas of temporal logic, and S-RASP-like."""

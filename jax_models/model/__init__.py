"""Models: layers and their row programs, attention, positions, masks."""

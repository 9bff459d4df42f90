"""What a model is: layers and their row programs, attention, positions, masks."""

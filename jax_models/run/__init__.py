"""How a model is run: checked use, devices, blocks, float types."""

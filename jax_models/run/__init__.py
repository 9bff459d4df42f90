"""Running a model: checked use, devices, blocks, float types."""

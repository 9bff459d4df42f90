"""The model file: its keys, reading and writing, and the checks of a model."""

"""The model file: its words, reading, writing, and what is checked of a model."""

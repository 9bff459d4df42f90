"""Checkpoints of other libraries as models: Hugging Face folders and torch states."""

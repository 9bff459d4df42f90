"""Checkpoints of other libraries as models: folders of Hugging Face."""

"""Checkpoints: written whole or not at all, beside the training, and the newest valid one read back."""

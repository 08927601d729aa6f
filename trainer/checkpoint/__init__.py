"""Checkpoints: written whole or not at all while training continues, read back, and sampled from."""

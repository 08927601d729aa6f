"""Slurm, where one stands: its commands are on PATH, and a folder is shared by all its nodes."""

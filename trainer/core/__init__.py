"""Foundations of the trainer: errors and exit codes, files, the console, the host. Imports nothing else of it."""

"""Foundations of the trainer, which import nothing else of it: errors and exit codes, files, the console, the host."""

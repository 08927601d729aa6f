"""This machine as an engine: a queue in a folder, and a JobSpec's torchrun."""

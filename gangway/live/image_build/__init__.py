"""Builds the trainer's image for a stack: on this machine, or with the cloud's build service."""

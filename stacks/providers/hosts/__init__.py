"""Stacks on existing machines, over SSH; `stacks.providers` describes the modules."""

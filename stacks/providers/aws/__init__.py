"""Stacks on Amazon Web Services; `stacks.providers` describes the modules."""

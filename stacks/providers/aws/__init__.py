"""Stacks on Amazon Web Services; `gangway.stacks.providers` describes the modules."""

"""Stacks on existing machines, over SSH; `gangway.stacks.providers` describes the modules."""

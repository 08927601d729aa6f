"""Stacks in private clouds on OpenStack; `stacks.providers` describes the modules."""

"""Stacks in private clouds on OpenStack; `gangway.stacks.providers` describes the modules."""

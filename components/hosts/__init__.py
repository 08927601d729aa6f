"""Existing machines, set up and cleaned up over SSH.

There is no network, identity, registry or budget, and the machines mount their own file systems. Nothing is imported
here: a plan must not load what it does not need.
"""

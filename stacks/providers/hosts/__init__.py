"""Machines that are there already, reached over SSH: see `stacks.providers`."""

"""Notices that a machine is about to be taken away, one interface for every source."""

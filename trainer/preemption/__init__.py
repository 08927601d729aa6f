"""Preemption notices, one interface for every source."""

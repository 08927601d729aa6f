"""Finds an engine by name, and serves engines over SSH."""

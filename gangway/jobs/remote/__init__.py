"""Engines reached over SSH."""

"""Measurements during a run: the statistics line, devices, energy per step, exporters."""

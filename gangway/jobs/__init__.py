"""Engines that run jobs."""

"""Simulates many jobs on one cluster by policy. Pure: the same jobs, cluster, seed and policy give the same result."""

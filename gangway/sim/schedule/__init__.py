"""Simulates many jobs on one cluster: varying capacity, scheduling policies, and each policy's time, money, energy and
carbon. Pure and deterministic: the same jobs, cluster, seed and policy give the same result.
"""

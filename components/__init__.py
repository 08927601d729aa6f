"""Gangway's Pulumi components: clusters, file systems, capacity and budgets as reusable resources.

A folder a provider holds the resources; `core`, `estimate` and `catalog` are pure. Nothing here imports the trainer,
torch or a stack file.
"""

"""Gangway's Pulumi components: clusters, file systems, capacity and budgets as reusable resources. Provider packages
(`aws`, ...) hold the resources; the modules beside them are pure planning: catalogue, capacity, cost, energy, job,
tags. Nothing here imports the trainer, torch or a stack file.
"""

"""OpenStack: Pulumi components of a GPU cluster in a private cloud, and the pure planning behind them. It has no budget
(CloudKitty rates what was used, and stops nothing), registry, service for machines' lines, or keys that a project's
member may set up for volumes (an encrypted volume type is its administrator's).
"""

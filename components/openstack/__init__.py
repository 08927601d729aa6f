"""OpenStack: Pulumi components of a GPU cluster in a private cloud, and the pure planning behind them.

Files are called as those of the other providers where the part exists. No part of OpenStack's are: a budget (CloudKitty
rates what was used, and stops nothing), a registry, a service for machines' lines, and keys that a project's member may
set up for volumes (an encrypted volume type is its administrator's).
"""

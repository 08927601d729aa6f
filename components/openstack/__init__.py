"""OpenStack: Pulumi components of a GPU cluster in a private cloud, and the pure planning behind them.

There is no budget (CloudKitty only rates past usage), registry, log service, or customer key for volumes (an encrypted
volume type belongs to the administrator).
"""

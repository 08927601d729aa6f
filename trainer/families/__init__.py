"""Families of GANs: the roles of a run's networks and the phases of its step, one file each."""

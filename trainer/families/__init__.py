"""Families: which networks a run has, in which roles, and the phases of which its step is made; one file each."""

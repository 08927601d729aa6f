"""Starts a job's workers on a node: torchrun behind a launcher, the rendezvous server, the job's life cycle."""

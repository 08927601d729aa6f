"""Several workers: ranks, the world and its collectives, gradient averaging, the fabric check."""

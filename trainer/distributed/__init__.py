"""Several workers as one: ranks, the world and its collectives, averaging gradients, the fabric check."""

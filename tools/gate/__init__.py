"""Whether the trainer is right on this machine's GPUs: each way of computing against a reference, in ten minutes."""

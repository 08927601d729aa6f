"""Power of a run: energy meters, limits on the GPUs of a job and of a node, and a start that waits for clean power."""

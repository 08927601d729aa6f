"""TPUs: slices by shape, the queue's API, its requests, and waits."""

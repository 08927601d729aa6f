"""TPUs: slices by shape, the queue's API, what is asked of it, and what takes time there."""

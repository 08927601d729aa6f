"""What a job has used, cost and reported: one record, every figure with where it came from."""

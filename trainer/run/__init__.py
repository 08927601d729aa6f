"""One training run: the loop, its session setup, steering, reporting, and the lock on the run directory."""

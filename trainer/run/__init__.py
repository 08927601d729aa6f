"""One training run: the loop, what a session begins with, what it leaves behind, and who holds the run directory."""

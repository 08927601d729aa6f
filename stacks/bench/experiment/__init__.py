"""Control against treatment on this machine: scenarios, arms in balanced random order, and what the difference is worth."""

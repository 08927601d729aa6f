"""Control against treatment on this machine: scenarios, arms in balanced random order, and their difference."""

"""Reports on one run, and on several in `comparison`."""

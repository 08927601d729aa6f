"""The report of one run, and in `comparison` of several."""

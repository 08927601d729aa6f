"""`gangway forecast`: forecasts from a history, their track record, and their output files."""

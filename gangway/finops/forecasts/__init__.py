"""`gangway forecast`: what comes next of a history, how such forecasts have done, and the files that others read."""

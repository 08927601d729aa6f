"""`gangway bench`: suites of training runs on temporary stacks or on this machine; figures are in the runs' records."""

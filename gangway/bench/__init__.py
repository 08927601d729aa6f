"""`gangway bench`: suites of training runs on temporary stacks or on this machine. Measures nothing itself: a run's
figures are in its record.
"""

"""`gangway bench`: suites of training runs, on stacks that are made for them and destroyed again, or on this machine.
It measures nothing itself: every figure of a run is in the run's own record.
"""

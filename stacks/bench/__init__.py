"""`gangway bench`: suites of training runs, on stacks that are made for them and destroyed again, or on this machine.

`suite` is what people write, `runner` the loop over it, `cloud` and `local` where runs happen, `journal` what survives
a crash. It measures nothing itself: every figure of a run is in the run's own record.
"""

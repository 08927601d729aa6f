"""The fault drill: real processes, real signals, real cut cables; what a job loses by each."""

"""The record of a job: what it used, cost and reported, each figure with its source."""

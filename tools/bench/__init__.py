"""The trainer's speed as ratios in one run: `make bench`, or `python -m tools.bench`. No build fails by it.

Both sides of a ratio take turns on the same machine and threads; the median of the rounds' ratios counts.
"""

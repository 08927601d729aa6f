"""The trainer's speed as ratios in one run: `make bench`, or `python -m trainer.bench`.

Both sides of a ratio take turns, several times, on the same machine and the same threads; the median of the rounds'
ratios is told. Not a test: a busy machine says little, so nothing here fails a build.
"""

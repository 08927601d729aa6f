"""Commands of `python -m gangway.trainer` other than `train`, one module each."""

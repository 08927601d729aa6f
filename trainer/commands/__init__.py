"""Commands of `python -m trainer` other than `train`, one module each."""

"""Commands of `python -m trainer` beside `train`, a module each; `arguments` is their parser. Imports nothing."""

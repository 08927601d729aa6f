"""Commands of `python -m trainer` beside `train`, a module each: its flags, and what it does with them.

`data`, `evaluate`, `export`, `presets`, `sample`; `arguments` is the parser they share. Nothing is imported here.
"""

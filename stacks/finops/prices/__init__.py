"""`gangway prices`: what the catalogue's prices are, what the providers say today, and what changed.

`source` says what a source of prices is; `aws`, `gcp` and `azure` ask the providers; `refresh` judges what they answer
and lays it down as an overlay; `show` and `diff` read. `command` is the command line. Nothing here is imported by a
plan: what was refreshed reaches it through `components.catalog`.
"""

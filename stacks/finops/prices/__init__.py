"""`gangway prices`: what the catalogue's prices are, what the providers say today, and what changed.

`source` says what a source of prices is; `aws`, `gcp` and `azure` ask the providers; `refresh` lays down what they
answer as an overlay, which reaches a plan through `components.catalog`.
"""

"""`gangway prices`: what the catalogue's prices are, what the providers say today, and what changed. Their answers
become an overlay, which reaches a plan through `components.catalog`.
"""

"""`gangway prices`: catalogue prices, the providers' prices as overlays, and their differences."""

"""`gangway prices`: catalogue prices, the providers' current prices, and their differences. Fetched prices become an
overlay, which plans read through `components.catalog`.
"""

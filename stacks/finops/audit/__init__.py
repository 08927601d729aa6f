"""`gangway audit`: what carries a stack's tag in the cloud and is not in its Pulumi state, and what it costs.

`state` reads the state; `aws`, `gcp` and `azure` list what is there; `judge` tells both apart; `prices` knows what an
hour of it costs. Nothing is ever deleted.
"""

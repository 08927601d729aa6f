"""`gangway audit`: what carries a stack's tag in the cloud and is not in its Pulumi state, and what it costs.

`state` reads the state; `aws`, `gcp` and `azure` list what is there; `classify_orphans` tells both apart. Nothing is
ever deleted.
"""

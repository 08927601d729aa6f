"""`gangway audit`: resources that carry a stack's tag but are not in its Pulumi state, and their cost. Read-only."""

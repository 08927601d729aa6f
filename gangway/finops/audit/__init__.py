"""`gangway audit`: what carries a stack's tag in the cloud and is not in its Pulumi state, and what it costs. Nothing
is ever deleted.
"""

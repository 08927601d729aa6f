"""Sessions with the clouds' APIs."""

"""Sessions with the clouds' APIs, one way to open each."""

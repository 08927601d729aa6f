"""Commands about what exists now: checks in the cloud."""
